"""`lilo-sidecar check` of real deployments, each with one thing wrong: it says which, why it
matters and what to do."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lilo_engine_hook import wire
from lilo_sidecar import asking, options_asking
from lilo_sidecar.check.gather import READER
from lilo_sidecar.check.trainer_findings import STUCK_AFTER
from lilo_sidecar.core.timing import AGGREGATE
from lilo_sidecar.core.trainer import MAX_PENDING
from lilo_sidecar.intake.ingest import MAX_CONNECTIONS
from support.checking import altered, check, check_as, lines_of_check
from support.feed import begin, span
from support.forked import ForkedProcess
from support.producer import Producer
from support.sidecar import COMMAND, SidecarProcess, running
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

STRANGER = 65534
ANOTHER = 65533
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture(autouse=True)
def _no_socket_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LILO_TIMING_SOCKET", raising=False)


@contextlib.contextmanager
def sidecar_at(path: Path, *arguments: str | Path) -> Iterator[SidecarProcess]:
    """A sidecar with its socket there."""
    with running(ForkedProcess("serve", "--socket", path, *arguments)) as sidecar:
        yield sidecar


@pytest.fixture
def sidecar(tmp_path: Path) -> Iterator[SidecarProcess]:
    with sidecar_at(tmp_path / "timing.sock") as running_one:
        yield running_one


@pytest.fixture
def trainer(sidecar: SidecarProcess) -> Iterator[Producer]:
    """One that has reported an operation: nothing is wrong."""
    with Producer(sidecar.socket) as producer:
        producer.greet()
        producer.send(begin("m", 1, 1.0), span(["m"], 2.0, 3.0, ids=["m:1"]))
        yield producer


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory that other users can reach: pytest keeps its own to itself."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o711)
        yield Path(place)


# --- all is well -----------------------------------------------------------------------------


def test_all_is_well(sidecar: SidecarProcess, trainer: Producer) -> None:
    """With a sidecar that is told nothing but its socket, and a trainer that reports: status 0, and
    one line that says so. The check leaves no trace in what it looks at."""
    before = {name: sidecar.health()[name] for name in ("producers", "faults", "ingest")}
    done = check("--socket", sidecar.socket)
    assert (done.status, done.codes, done.document["status"]) == (0, [], "ok")
    assert done.document["url"] == sidecar.url
    (line,) = lines_of_check("--socket", sidecar.socket)
    assert line.startswith(f"All is well: lilo-sidecar 0.1.0 at {sidecar.url}")
    assert "2 events counted" in line

    def traces(health: dict[str, Any]) -> bool:
        return {name: health[name] for name in before} == before

    sidecar.wait_for(traces)


def test_command_is_a_process_with_an_exit_status(tmp_path: Path) -> None:
    """As a script runs it: the findings on stdout, nothing on stderr, status 2 when there is
    nobody to ask."""
    done = subprocess.run(
        [*COMMAND, "check", "--socket", tmp_path / "timing.sock"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (2, "")
    (line,) = done.stdout.splitlines()
    assert line.startswith("no_socket: No sidecar has its socket at ")


def test_terminal_with_few_characters(tmp_path: Path) -> None:
    """A path that it cannot show is shown all the same."""
    done = subprocess.run(
        [*COMMAND, "check", "--socket", tmp_path / "t\u00efming.sock"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert (done.returncode, done.stderr) == (2, "")
    assert r"t\xefming.sock" in done.stdout


def test_reader_that_has_read_enough(tmp_path: Path) -> None:
    """As in `check | head -0`: no traceback, and not the status of a deployment that is well."""
    with subprocess.Popen(
        [*COMMAND, "check", "--socket", tmp_path / "timing.sock"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == ("", 2)


def test_figures_are_those_since_the_trainers_start(
    sidecar: SidecarProcess, trainer: Producer
) -> None:
    """Whoever ends an interval meanwhile takes nothing from the check, nor it from them."""
    lost = wire.encode_batch(trainer.sent + 1, 3, 0, [])
    trainer.socket.sendall(lost)
    trainer.acknowledged()
    sidecar.timing(reset=True)
    assert "3 events" in check("--socket", sidecar.socket).says("dropped")
    answer = sidecar.http.get("/api/v1/timing", params={"reader": READER, "reset": "true"}).json()
    assert answer["model_id"] == AGGREGATE
    assert answer["delivery"]["dropped"] == 3
    assert sidecar.timing()["delivery"]["dropped"] == 0


# --- the socket ------------------------------------------------------------------------------


def test_no_socket(tmp_path: Path) -> None:
    """Where there is none, nor a directory for it: the command that starts a sidecar there."""
    for path in (tmp_path / "timing.sock", tmp_path / "missing" / "timing.sock"):
        done = check("--socket", path)
        assert (done.status, done.codes) == (2, ["no_socket"])
        assert f"lilo-sidecar serve --socket {path}" in done.says("no_socket")
    assert "its directory is not there" in done.says("no_socket")


def test_socket_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that the trainer would take."""
    monkeypatch.setenv("LILO_TIMING_SOCKET", str(tmp_path / "named.sock"))
    assert str(tmp_path / "named.sock") in check().says("no_socket")


def test_socket_of_a_run_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where none was named, that of the one `lilo-sidecar run` of this user is meant; of several,
    each is told."""
    default = tmp_path / "timing.sock"
    monkeypatch.setattr(options_asking, "default_socket_path", lambda: str(default))
    first, second = tmp_path / "run-1.sock", tmp_path / "run-2.sock"
    (tmp_path / "run-3.sock").touch()
    with sidecar_at(first):
        assert check().codes == ["no_trainer"]
        with sidecar_at(second):
            done = check()
            assert (done.status, done.codes) == (2, ["no_socket"])
            assert f"add --socket with its path: {first}, {second}." in done.says("no_socket")


def test_stale_socket(sidecar: SidecarProcess) -> None:
    """The sidecar was killed: the URL that it left is not asked, as its port may be anybody's."""
    sidecar.stop(signal.SIGKILL)
    done = check("--socket", sidecar.socket)
    assert (done.status, done.codes, done.document["url"]) == (2, ["stale_socket"], None)


def test_what_is_no_socket(tmp_path: Path) -> None:
    """A file in its place, and a path that no socket can have."""
    (tmp_path / "file").touch()
    assert check("--socket", tmp_path / "file").codes == ["not_a_socket"]
    long = tmp_path / ("x" * 107)
    assert check("--socket", long).codes == ["socket_too_long"]


def test_socket_that_nobody_serves(tmp_path: Path) -> None:
    """The listener takes no connections: it hangs, or is stopped."""
    path = tmp_path / "timing.sock"
    with socket.socket(socket.AF_UNIX) as listener, contextlib.ExitStack() as waiting:
        listener.bind(str(path))
        listener.listen(0)
        for _ in range(2):
            knocking = waiting.enter_context(socket.socket(socket.AF_UNIX))
            knocking.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                knocking.connect(str(path))
        assert check("--socket", path).codes == ["socket_crowded"]


@needs_root
def test_no_permission(shared: Path) -> None:
    """What keeps the user out is named, whether it is the directory or the socket itself."""
    with sidecar_at(shared / "own" / "timing.sock") as sidecar:
        done = check_as(STRANGER, "--socket", sidecar.socket)
        assert (done.status, done.codes) == (2, ["no_permission"])
        said = done.says("no_permission")
        assert f"the directory {sidecar.socket.parent}, of uid 0 and mode 0700" in said
        assert f"--allow-uid {STRANGER}" in said
        sidecar.socket.parent.chmod(0o711)
        sidecar.socket.chmod(0o611)
        said = check_as(STRANGER, "--socket", sidecar.socket).says("no_permission")
        assert f"the socket {sidecar.socket}, of uid 0 and mode 0611" in said


@needs_root
def test_user_that_may_not_report(shared: Path) -> None:
    """One that can reach the socket hears from the sidecar who may; and whoever looks later hears
    that somebody was refused. One that is allowed finds nothing wrong with the socket."""
    path = shared / "own" / "timing.sock"
    with sidecar_at(path, "--allow-uid", str(ANOTHER)) as sidecar:
        done = check_as(STRANGER, "--socket", path)
        assert done.codes[0] == "user_refused"
        assert f"--allow-uid {STRANGER}" in done.says("user_refused")
        assert check_as(ANOTHER, "--socket", path).codes == ["no_trainer", "peers_refused"]
        said = check("--http", sidecar.url.removeprefix("http://")).says("peers_refused")
        assert "1 connection of users" in said


@needs_root
def test_listener_that_a_trainer_does_not_trust(shared: Path) -> None:
    """In a directory that anybody could have made: what the trainer's own log would say."""
    anybodys = shared / "anybodys"
    anybodys.mkdir()
    anybodys.chmod(0o1777)
    path = anybodys / "place" / "timing.sock"
    path.parent.mkdir()
    os.chown(path.parent, STRANGER, -1)
    path.parent.chmod(0o711)
    listen = """
import os, socket, sys
os.setuid(int(sys.argv[2]))
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o666)
listener.listen(64)
print("listening", flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-c", listen, str(path), str(STRANGER)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/"
    ) as listener:
        assert listener.stdout is not None
        assert listener.stdout.readline() == "listening\n"
        url = path.with_name("timing.sock.url")
        url.write_text("http://127.0.0.1:1\n")
        os.chown(url, STRANGER, -1)
        done = check_as(ANOTHER, "--socket", path)
        listener.kill()
    # Nor is its word on where it serves HTTP taken: a token might go there.
    assert (done.status, done.codes) == (2, ["untrusted_listener", "no_address"])
    assert f"uid {STRANGER} listens at {path}" in done.says("untrusted_listener")


def test_producers_without_room(sidecar: SidecarProcess) -> None:
    """As many are connected as may be: whoever comes is turned away, and it shows."""
    with contextlib.ExitStack() as held:
        for number in range(MAX_CONNECTIONS):
            producer = held.enter_context(Producer(sidecar.socket, f"boot{number}"))
            producer.greet("backend")
        with Producer(sidecar.socket) as one_more:
            assert one_more.refused() == "busy"
        assert "producers_refused" in check("--socket", sidecar.socket).codes


# --- HTTP ------------------------------------------------------------------------------------


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


# --- the trainer -----------------------------------------------------------------------------


def test_no_trainer(sidecar: SidecarProcess) -> None:
    """None ever connected: what to set and what to write, word for word."""
    done = check("--socket", sidecar.socket)
    assert (done.status, done.codes) == (1, ["no_trainer"])
    said = done.says("no_trainer")
    assert f"LILO_TIMING_SOCKET={sidecar.socket}" in said
    assert "from lilo_engine_hook import attach; timing = attach(engine)" in said


def test_trainer_that_is_gone(sidecar: SidecarProcess, trainer: Producer) -> None:
    """And since when."""
    trainer.close()
    sidecar.wait_for(lambda health: not health["trainer"]["connected"])
    done = check("--socket", sidecar.socket)
    assert (done.status, done.codes) == (1, ["trainer_gone"])
    assert " s ago" in done.says("trainer_gone")


def test_backend_without_an_engine(sidecar: SidecarProcess) -> None:
    """The GPU's process reports, and the engine's does not."""
    with Producer(sidecar.socket) as backend:
        backend.greet("backend")
        assert check("--socket", sidecar.socket).codes == ["no_engine"]


def test_engine_that_says_nothing(sidecar: SidecarProcess) -> None:
    """Connected and never called; then called, and nothing has run."""
    with Producer(sidecar.socket) as producer:
        producer.greet()
        assert check("--socket", sidecar.socket).codes == ["no_calls"]
        producer.send(wire.Register(1.0, "m"))
        assert check("--socket", sidecar.socket).codes == ["no_operations"]


def test_lane_that_is_stuck(sidecar: SidecarProcess, trainer: Producer) -> None:
    """Said once it is in one operation for as long as that takes no operation, and not before."""
    now = time.time()
    trainer.send(wire.State(now - STUCK_AFTER + 60, ("m",), "executing:optim_step"))
    assert check("--socket", sidecar.socket).codes == []
    trainer.send(wire.State(now - STUCK_AFTER, ("m",), "executing:\x1b[2Jstep"))
    done = check("--socket", sidecar.socket)
    assert (done.status, done.codes) == (1, ["lane_stuck"])
    assert "gpu" in done.says("lane_stuck")
    assert "\x1b" not in done.says("lane_stuck")


# --- what is missing -------------------------------------------------------------------------


def _dropped(trainer: Producer) -> None:
    trainer.socket.sendall(wire.encode_batch(trainer.sent + 1, 7, 0, []))
    trainer.acknowledged()


def _missed(trainer: Producer) -> None:
    trainer.sent += 7
    trainer.work()


def _rejected(trainer: Producer) -> None:
    trainer.socket.sendall(wire.encode_batch(trainer.sent + 1, 0, 7, []))
    trainer.acknowledged()


def _unweighed(trainer: Producer) -> None:
    trainer.socket.sendall(wire.encode_batch(trainer.sent + 1, 0, 0, [], 7))
    trainer.acknowledged()


def _negative(trainer: Producer) -> None:
    for seq in range(2, 9):
        trainer.send(begin("m", seq, 9.0), span(["m"], 5.0, 6.0, ids=[f"m:{seq}"]))


def _series_refused(trainer: Producer) -> None:
    for first in range(0, 8192 + 256, 256):
        trainer.work([f"model-{number}" for number in range(first, first + 256)])


def _pending_evicted(trainer: Producer) -> None:
    trainer.send(wire.Finish(4.0, "m", "m:1"))
    for first in range(2, MAX_PENDING + 2 + 7, 100):
        stop = min(first + 100, MAX_PENDING + 2 + 7)
        trainer.send(*[begin("m", seq, 5.0) for seq in range(first, stop)])


@pytest.mark.parametrize(
    ("lose", "code", "says"),
    [
        (_dropped, "dropped", "7 events of 9 were dropped"),
        (_missed, "missed", "7 events of 10 never came"),
        (_rejected, "rejected", "7 calls of the observer"),
        (_unweighed, "unweighed", "weight of 7 commands"),
        (_negative, "negative", "7 durations"),
        (_series_refused, "series_refused", "258 records"),
        (_pending_evicted, "pending_evicted", "7 commands"),
    ],
)
def test_losses(
    sidecar: SidecarProcess,
    trainer: Producer,
    lose: Callable[[Producer], None],
    code: str,
    says: str,
) -> None:
    """Each kind is told by itself, with how many."""
    lose(trainer)
    done = check("--socket", sidecar.socket)
    assert (done.status, done.codes) == (1, [code])
    assert says in done.says(code)


# --- the sidecar -----------------------------------------------------------------------------


def test_journal_that_is_off(tmp_path: Path) -> None:
    """With the reason."""
    (tmp_path / "file").touch()
    path = tmp_path / "timing.sock"
    with sidecar_at(path, "--state-dir", tmp_path / "file" / "state"):
        said = check("--socket", path).says("journal_off")
    assert "Not a directory" in said
    assert "--state-dir" in said


def test_connections_that_break_the_protocol(sidecar: SidecarProcess, trainer: Producer) -> None:
    """They are counted, and told."""
    with Producer(sidecar.socket) as broken:
        broken.socket.sendall(b"\0\0\0\1\xc1")
        broken.refused()
    done = check("--socket", sidecar.socket)
    assert (done.status, done.codes) == (1, ["protocol_errors"])
    assert "1 connection broke the protocol" in done.says("protocol_errors")


def _newer(answers: dict[str, dict[str, Any]]) -> None:
    answers["/healthz"]["version"] = "9.9.9"


def _faulty(answers: dict[str, dict[str, Any]]) -> None:
    health = answers["/healthz"]
    health["faults"], health["ingest"]["faults"], health["http"]["faults"] = 1, 2, 3


def _full(answers: dict[str, dict[str, Any]]) -> None:
    answers["/healthz"]["http"]["refused"] = 4


@pytest.mark.parametrize(
    ("alter", "code", "says"),
    [
        (_newer, "other_version", "version 9.9.9"),
        (_faulty, "faults", "6 faults of its own"),
        (_full, "readers_refused", "4 connections of readers"),
    ],
)
def test_what_no_test_brings_a_sidecar_to(
    sidecar: SidecarProcess,
    trainer: Producer,
    alter: Callable[[dict[str, dict[str, Any]]], None],
    code: str,
    says: str,
) -> None:
    """Told from a real sidecar's answers with the one thing altered."""
    answers = {"/healthz": sidecar.health(), "/api/v1/timing": sidecar.timing()}
    with altered(answers, alter) as server:
        done = check("--url", server.url)
    assert (done.status, done.codes) == (1, [code])
    assert says in done.says(code)
