"""`lilo-sidecar check` of real deployments, with one thing wrong with the socket: it says
which, why it matters and what to do."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lilo_sidecar import options_asking
from lilo_sidecar.intake.ingest import MAX_CONNECTIONS
from support.checking import check, check_as, sidecar_at
from support.producer import Producer
from support.sidecar import SidecarProcess

STRANGER = 65534
ANOTHER = 65533
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory that other users can reach: pytest keeps its own to itself."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o711)
        yield Path(place)


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
        done = check_as(STRANGER, "--socket", path, patience=10.0)
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
