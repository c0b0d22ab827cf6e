"""`lilo-sidecar check` of real deployments, with one thing wrong with what answers over HTTP: it
says which, why it matters and what to do."""

from __future__ import annotations

import contextlib
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from lilo_sidecar import asking
from support.checking import check, lines_of_check, sidecar_at
from support.sidecar import COMMAND, SidecarProcess
from support.timing_server import (
    Answer,
    Request,
    error,
    ok,
    silent_server,
    speaking_server,
    timing_server,
    unused_url,
)
from support.tools import tool


def test_address_is_beside_the_socket_while_it_runs(tmp_path: Path) -> None:
    """In a file of its user's alone, which a sidecar that is killed leaves and its successor
    replaces, and which goes at the end."""
    file = tmp_path / "timing.sock.url"
    with sidecar_at(tmp_path / "timing.sock") as killed:
        killed.stop(signal.SIGKILL)
    assert file.read_text() == f"{killed.url}\n{killed.process.pid}\n"
    with sidecar_at(tmp_path / "timing.sock") as sidecar:
        assert file.read_text() == f"{sidecar.url}\n{sidecar.process.pid}\n"
        assert file.stat().st_mode & 0o777 == 0o600
        assert sidecar.stop() == 0
    assert not file.exists()


def test_address_of_another_process_is_not_believed(tmp_path: Path) -> None:
    """One that was killed left it, and its port to anybody: no token goes there."""
    with sidecar_at(tmp_path / "timing.sock") as sidecar:
        file = tmp_path / "timing.sock.url"
        assert check("--socket", sidecar.socket).codes == ["no_trainer"]
        file.write_text(f"{sidecar.url}\n{sidecar.process.pid + 1}\n")
        assert check("--socket", sidecar.socket).codes == ["no_address"]


def test_address_file_that_cannot_be_written_is_no_reason_not_to_serve(tmp_path: Path) -> None:
    """The log says so, and the check says how to do without it."""
    (tmp_path / "timing.sock.url").mkdir()
    with sidecar_at(tmp_path / "timing.sock") as sidecar:
        sidecar.log.wait_for(lambda line: "cannot write" in line and "timing.sock.url" in line)
        done = check("--socket", sidecar.socket)
        assert (done.status, done.codes) == (2, ["no_address"])
        address = sidecar.url.removeprefix("http://")
        assert check("--socket", sidecar.socket, "--http", address).codes == ["no_trainer"]
        assert sidecar.stop() == 0


def test_another_sidecar_than_that_of_the_socket(tmp_path: Path) -> None:
    """Figures of one deployment are not taken for those of the other."""
    with sidecar_at(tmp_path / "a.sock") as one, sidecar_at(tmp_path / "b.sock") as other:
        done = check("--socket", one.socket, "--url", other.url)
        assert done.codes[0] == "another_sidecar"
        assert one.url in done.says("another_sidecar")


def test_nobody_answers() -> None:
    """Connection refused, in words."""
    done = check("--url", unused_url())
    assert (done.status, done.codes) == (2, ["no_http"])
    assert "Connection refused" in done.says("no_http")


@contextlib.contextmanager
def tls_server(directory: Path) -> Iterator[str]:
    """The URL of a server with a certificate that it signed itself, in certificate.pem. It hangs up
    on whoever trusts that."""
    key, certificate = directory / "key.pem", directory / "certificate.pem"
    subprocess.run(
        [
            *(tool("openssl", "openssl"), "req", "-x509", "-nodes", "-newkey", "ec"),
            *("-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    def speak(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as tls:
            tls.recv(1)

    with speaking_server(speak) as url:
        yield url.replace("http:", "https:")


def test_certificate_that_is_not_trusted(tmp_path: Path) -> None:
    """In words, without those of the library."""
    with tls_server(tmp_path) as url:
        done = check("--url", url)
    assert (done.status, done.codes) == (2, ["certificate"])
    says = done.says("certificate")
    assert "its certificate is not trusted: self-signed certificate." in says
    assert "_ssl" not in says
    assert "[" not in says


def test_authority_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable that OpenSSL has for it, and the finding names."""
    with tls_server(tmp_path) as url:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
        assert check("--url", url).codes == ["hung_up"]


@pytest.mark.parametrize(("name", "why"), [("missing", "No such file"), ("key.pem", "no certif")])
def test_authorities_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, why: str
) -> None:
    """No file of that name, or none of certificates."""
    with tls_server(tmp_path) as url:
        file = tmp_path / name
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        done = check("--url", url)
        assert (done.status, done.codes) == (2, ["certificate"])
        said = f"the authorities in SSL_CERT_FILE={file} cannot be read: {why}"
        assert said in done.says("certificate")
        top = subprocess.run(
            [*COMMAND, "top", "--url", url, "--once"], capture_output=True, text=True, timeout=20
        )
        assert top.returncode == 2
        assert said in top.stderr


def test_plain_http_that_is_asked_for_https(sidecar: SidecarProcess) -> None:
    """A sidecar of ours, and a server that hangs up at once."""
    done = check("--url", sidecar.url.replace("http:", "https:"))
    assert done.status == 2
    assert done.codes[0] == "no_tls"
    assert "ask it with http:// instead" in done.says("no_tls")

    def hang_up(connection: socket.socket) -> None:
        connection.recv(65536)

    with speaking_server(hang_up) as url:
        assert check("--url", url.replace("http:", "https:")).codes == ["no_tls"]


def test_no_answer_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever says nothing, or says it byte by byte, is not waited for."""
    monkeypatch.setattr(asking, "TIMEOUT", 0.2)

    def trickle(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while True:
            connection.sendall(b" ")
            time.sleep(0.01)

    with silent_server() as silent, speaking_server(trickle) as trickling:
        for url in (silent, trickling):
            done = check("--url", url)
            assert (done.status, done.codes) == (2, ["slow_http"])


def _speak(data: bytes) -> Callable[[socket.socket], None]:
    def speak(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(data)
        connection.recv(65536)  # until the other side hangs up

    return speak


def _always(answer: Answer, request: Request) -> Answer:
    return answer


def test_something_else_answers() -> None:
    """Another HTTP server, one that speaks no HTTP, and one that never ends."""
    answers = [
        Answer(b"<html>hello</html>"),
        Answer(b"<html>not found</html>", 404),
        ok({"status": "ok"}),
        ok([]),
        Answer(b"[" * 100_000),
    ]
    for answer in answers:
        with timing_server(partial(_always, answer)) as server:
            done = check("--url", server.url)
            assert (done.status, done.codes) == (2, ["not_a_sidecar"])
    with speaking_server(_speak(b"220 mail ready\r\n\r\n")) as url:
        assert check("--url", url).codes == ["not_a_sidecar"]


def test_whoever_hangs_up() -> None:
    """Without a word, or within an answer: it may be a sidecar that was just stopped."""
    for answer in (replace(ok({}), lost=True), ok({"status": "ok"}).torn()):
        with timing_server(partial(_always, answer)) as server:
            done = check("--url", server.url)
            assert (done.status, done.codes) == (2, ["hung_up"])

    def reset(connection: socket.socket) -> None:
        connection.recv(1)  # the rest is not read: the other side's kernel is told so

    with speaking_server(reset) as url:
        assert check("--url", url).codes == ["hung_up"]


def test_answer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the bound it is read, beyond it not."""
    body = b'{"status": "ok"}'
    for bound, says in ((len(body), "is not a sidecar's"), (len(body) - 1, "is over 15 bytes")):
        monkeypatch.setattr(asking, "MAX_ANSWER", bound)
        with timing_server(lambda _: Answer(body)) as server:
            assert says in check("--url", server.url).says("not_a_sidecar")


def test_words_of_a_server_do_nothing_to_the_terminal() -> None:
    """Whatever answers there: no escape sequence of it reaches the terminal, and no line break."""
    with timing_server(lambda _: error(500, message="\x1b[2J\nall is well\u202e")) as server:
        (line,) = lines_of_check("--url", server.url)
    assert line.startswith("no_answer: ")
    assert line.isprintable()


def test_token(tmp_path: Path) -> None:
    """Missing, wrong, and right; it is repeated nowhere."""
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.write_text("s3cret-word\n")
    wrong.write_text("0ther-word\n")
    for path in (right, wrong):
        path.chmod(0o600)
    path = tmp_path / "timing.sock"
    with sidecar_at(path, "--token-file", right):
        done = check("--socket", path)
        assert (done.status, done.codes) == (2, ["token_missing", "no_trainer"])
        done = check("--socket", path, "--token-file", wrong)
        assert (done.status, done.codes) == (2, ["token_wrong", "no_trainer"])
        assert "0ther-word" not in str(done.document)
        done = check("--socket", path, "--token-file", right)
        assert (done.status, done.codes) == (1, ["no_trainer"])


def test_host_that_is_not_answered(sidecar: SidecarProcess) -> None:
    """Asked by a name that is not loopback's, a sidecar without a token says so."""
    url = sidecar.url.replace("127.0.0.1", "0.0.0.0")
    done = check("--url", url)
    assert done.codes == ["host_refused", "no_trainer"]
    assert "--token-file" in done.says("host_refused")
