"""The daemon's sockets: taken only when free, and given back."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import threading
import time
from pathlib import Path

import pytest

from lilo_sidecar.errors import StartError
from lilo_sidecar.intake import listening
from lilo_sidecar.intake.listening import http_listener, unix_listener
from lilo_sidecar.web.server import url_of


def test_socket_is_private_and_removed(tmp_path: Path) -> None:
    """Mode 0600, in directories of 0700 where they were missing, whatever the umask; the umask
    is left as it was."""
    path = tmp_path / "new" / "timing.sock"
    before = os.umask(0)
    try:
        with unix_listener(path):
            assert stat.S_IMODE(path.lstat().st_mode) == 0o600
            assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
            assert os.umask(0) == 0
        assert not path.exists()
    finally:
        os.umask(before)


def test_socket_for_other_users_can_be_reached(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Anybody may connect to it, whatever the umask, through directories that only their owner
    can read or write to."""
    path = tmp_path / "new" / "timing.sock"
    before = os.umask(0o077)
    try:
        with unix_listener(path, frozenset({1})):
            assert stat.S_IMODE(path.lstat().st_mode) == 0o666
            assert stat.S_IMODE(path.parent.stat().st_mode) == 0o711
            assert os.umask(0o077) == 0o077
    finally:
        os.umask(before)
    assert caplog.messages == []


def test_place_that_was_taken_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Another socket there is no reason to fight over it: the log says so, once each time. When
    there is nothing, this one is back."""
    path = tmp_path / "timing.sock"
    with unix_listener(path) as listener:
        first = listener.socket
        for _ in range(2):
            path.unlink()
            with socket.socket(socket.AF_UNIX) as another:
                another.bind(str(path))
                for _ in range(3):
                    listener.restore()
                assert listener.socket is first
                (message,) = caplog.messages
                assert f"something else is at {path} now" in message
                caplog.clear()
            path.unlink()
            listener.restore()
            (message,) = caplog.messages
            assert f"{path} was removed by somebody; it is put back" in message
            caplog.clear()
            first = listener.socket
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(path))
        path.unlink()
        path.write_text("somebody's")
    assert path.read_text() == "somebody's"


def test_stale_socket_is_replaced(tmp_path: Path) -> None:
    """One that nobody listens on."""
    path = tmp_path / "timing.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with unix_listener(path), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


def test_busy_socket_is_live(tmp_path: Path) -> None:
    """One whose owner accepts nobody for now, with a queue that is full, is not taken over."""
    path = tmp_path / "timing.sock"
    with socket.socket(socket.AF_UNIX) as owner, socket.socket(socket.AF_UNIX) as waiting:
        owner.bind(str(path))
        owner.listen(0)
        waiting.connect(str(path))
        with pytest.raises(StartError, match="another process listens"), unix_listener(path):
            pass
        assert path.exists()


@pytest.mark.parametrize("kind", ["file", "directory", "link to a socket", "dangling link"])
def test_anything_else_is_left_alone(tmp_path: Path, kind: str) -> None:
    """Only a stale socket is ever removed, and no link is followed."""
    path = tmp_path / "timing.sock"
    match kind:
        case "file":
            path.write_text("x")
        case "directory":
            path.mkdir()
        case "link to a socket":
            with socket.socket(socket.AF_UNIX) as dead:
                dead.bind(str(tmp_path / "other"))
            path.symlink_to(tmp_path / "other")
        case "dangling link":
            path.symlink_to(tmp_path / "nowhere")
    before = path.lstat()
    with pytest.raises(StartError, match="is no socket"), unix_listener(path):
        pass
    assert path.lstat().st_ino == before.st_ino


def test_one_of_many_that_start_at_once_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several that find the same stale socket, one gets the place and the others an error;
    whoever connects then reaches the one that has it."""
    monkeypatch.setattr(listening, "_LOCK_TIMEOUT", 60.0)  # whoever holds it may be held up
    path = tmp_path / "timing.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    start, stop, results = threading.Barrier(8), threading.Barrier(9), list[str]()

    def contend() -> None:
        start.wait()
        try:
            with unix_listener(path):
                results.append("won")
                stop.wait()
        except StartError:
            results.append("lost")
            stop.wait()

    threads = [threading.Thread(target=contend) for _ in range(8)]
    for thread in threads:
        thread.start()
    try:
        stop.wait(20)
    finally:
        for thread in threads:
            thread.join(20)
    assert sorted(results) == ["lost"] * 7 + ["won"]


def test_others_who_start_there_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While somebody else looks at the place, this one waits its turn."""
    monkeypatch.setattr(listening, "_LOCK_TIMEOUT", 60.0)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        os.close(descriptor)

    monkeypatch.setattr(time, "sleep", sleep)
    with unix_listener(tmp_path / "timing.sock"):
        assert len(waits) == 1


def test_whoever_holds_the_lock_for_ever_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory that another program has locked for itself is no reason not to start."""
    monkeypatch.setattr(listening, "_LOCK_TIMEOUT", 0.03)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        with unix_listener(tmp_path / "timing.sock"):
            pass
    finally:
        os.close(descriptor)


def test_system_keeps_little_of_an_http_connection() -> None:
    """Also of one that it made room for in advance; the figure that it tells is doubled."""
    with http_listener(socket.AF_INET, ("127.0.0.1", 0)) as listener:
        listener.listen()
        with socket.create_connection(listener.getsockname()):
            accepted, _ = listener.accept()
            with accepted:
                for option, most in (
                    (socket.SO_SNDBUF, listening.MAX_SEND_BUFFER),
                    (socket.SO_RCVBUF, listening.MAX_RECEIVE_BUFFER),
                ):
                    assert accepted.getsockopt(socket.SOL_SOCKET, option) <= 2 * most


def test_wildcard_is_announced_as_loopback() -> None:
    """The address in the ready line can be connected to."""
    with http_listener(socket.AF_INET, ("0.0.0.0", 0)) as listener:
        assert url_of(listener) == f"http://127.0.0.1:{listener.getsockname()[1]}"
    with http_listener(socket.AF_INET6, ("::", 0)) as listener:
        assert url_of(listener) == f"http://[::1]:{listener.getsockname()[1]}"
    with http_listener(socket.AF_INET6, ("::1", 0)) as listener:
        assert url_of(listener) == f"http://[::1]:{listener.getsockname()[1]}"
