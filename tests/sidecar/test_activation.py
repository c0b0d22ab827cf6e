"""The listening socket that systemd passes: taken as it is, or refused with a reason."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lilo_engine_hook import TimingObserver
from lilo_sidecar.intake.activation import PassedListener, PassedSocket, passed_socket
from support.operations import Operation
from support.producer import Producer
from support.sidecar import COMMAND, TIMEOUT, running, wait_until
from support.tools import tool

ACTIVATE = """
import os, sys
descriptor, *command = sys.argv[1:]
if int(descriptor) != 3:
    os.dup2(int(descriptor), 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", LISTEN_FDNAMES="timing")
os.execv(command[0], command)
"""
"""Starts a command as systemd does: the socket is descriptor 3, and the variables name it."""
FOR_ITSELF = """
import os, sys
os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Starts a command with the variables, and without a socket."""


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    """A listening socket, as a socket unit makes it."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "timing.sock"))
        listening.listen(8)
        yield listening


def activated(
    listening: socket.socket, *arguments: str | Path, **options: object
) -> subprocess.Popen[str]:
    """A sidecar that is started with the socket."""
    command = [sys.executable, "-c", ACTIVATE, str(listening.fileno()), *COMMAND, "serve"]
    process: subprocess.Popen[str] = subprocess.Popen(
        [*command, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=[listening.fileno()],
        text=True,
        **options,  # type: ignore[call-overload]
    )
    return process


def test_passed_socket_is_used_and_stays(tmp_path: Path, listener: socket.socket) -> None:
    """Who connected before the sidecar was started is served by it; its path is the one that is
    reported, and the state is beside it. At the end the file is left, and whoever connects then is
    served by the next one, which has the figures of the first."""
    path = tmp_path / "timing.sock"
    with Producer(path) as early:
        with running(activated(listener)) as sidecar:
            assert sidecar.socket == path
            assert early.greet() == 0
            assert early.work() == 1
            assert sidecar.stop() == 0
        assert sidecar.log.rest() == []
        assert path.is_socket()
    with Producer(path) as late, running(activated(listener)) as again:
        assert late.greet() == 1  # what the first one acknowledged
        assert again.health()["journal"] == {"writing": True, "reason": None}


def test_removed_file_of_a_passed_socket_is_told_once(
    tmp_path: Path, listener: socket.socket
) -> None:
    """The sidecar cannot put it back, and says who can; connections that there are go on."""
    path = tmp_path / "timing.sock"
    with running(activated(listener)) as sidecar, Producer(path) as producer:
        producer.greet()
        path.unlink()
        said = sidecar.log.wait_for(lambda line: "was removed by somebody" in line)
        assert f"the socket {path} was removed" in said
        assert said.endswith("it is systemd's to put back: restart its socket unit")
        assert producer.work() == 1
        assert sidecar.stop() == 0
        assert len(sidecar.log.rest()) == 1


def test_file_that_comes_back_and_goes_again_is_told_again(
    tmp_path: Path, listener: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    """Once for each time, however often it is looked for."""
    path = tmp_path / "timing.sock"
    passed = PassedListener(PassedSocket(os.dup(listener.fileno()), path))
    for times in (1, 2):
        path.unlink()
        passed.restore()
        passed.restore()
        assert len(caplog.messages) == times
        path.touch()
        passed.restore()
    passed.close()
    assert path.exists()


def unix_datagram(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.bind(str(path))
    return made


def tcp(path: Path) -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


def not_listening(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path))
    return made


def without_a_path(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.bind(f"\0{path}")
    made.listen()
    return made


@pytest.mark.parametrize("make", [unix_datagram, tcp, not_listening, without_a_path])
def test_anything_but_a_listening_unix_socket_is_refused(
    tmp_path: Path, make: Callable[[Path], socket.socket]
) -> None:
    """One line that says what the unit should have."""
    with make(tmp_path / "other") as other:
        process = activated(other)
        out, err = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, out) == (2, "")
    (line,) = err.splitlines()
    assert "what systemd passed is no listening Unix socket" in line
    assert "one ListenStream= with the path of a Unix socket" in line


def test_another_place_on_the_command_line_is_refused(
    tmp_path: Path, listener: socket.socket
) -> None:
    """Which one trainers look at is not for the sidecar to guess; the same one may be named."""
    process = activated(listener, "--socket", tmp_path / "other.sock")
    _, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 2
    assert f"systemd listens at {tmp_path}/timing.sock, and --socket says {tmp_path}/other" in err
    assert "leave --socket out" in err
    with running(activated(listener, "--socket", tmp_path / "timing.sock")) as sidecar:
        assert sidecar.socket == tmp_path / "timing.sock"


def test_several_sockets_are_refused() -> None:
    """A second one would be listened to by nobody."""
    environment = {**os.environ, "LISTEN_FDS": "2"}
    command = [sys.executable, "-c", FOR_ITSELF, *COMMAND, "serve"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 2
    assert "systemd passed 2 sockets, and one is expected" in done.stderr


def test_descriptor_that_is_not_there_is_refused() -> None:
    """The variables say that there is one."""
    command = [sys.executable, "-c", FOR_ITSELF, *COMMAND, "serve"]
    environment = {**os.environ, "LISTEN_FDS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 2
    assert "what systemd passed is no socket: Bad file descriptor" in done.stderr


def test_variables_for_another_process_are_ignored_and_removed() -> None:
    """A trainer that was itself started by a socket passes its environment on."""
    environment = {"LISTEN_PID": "1", "LISTEN_FDS": "1", "LISTEN_FDNAMES": "web", "OTHER": "stays"}
    assert passed_socket(environment) is None
    assert environment == {"OTHER": "stays"}
    assert passed_socket({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "0"}) is None
    assert passed_socket({}) is None


def test_run_makes_its_own_socket() -> None:
    """What systemd passes to `run` is its command's."""
    environment = {**os.environ, "LISTEN_FDS": "1", "LISTEN_PID": "1"}
    code = "import os; print(os.environ['LISTEN_FDS'])"
    command = [*COMMAND, "run", "--", sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT)
    assert (done.returncode, done.stderr) == (0, "")
    assert "1" in done.stdout.splitlines()


def test_first_trainer_starts_the_sidecar(tmp_path: Path) -> None:
    """With systemd's own `systemd-socket-activate`: it listens, and starts the sidecar when a
    trainer's hook connects. The hook trusts the socket, since the kernel says who listened."""
    activate = tool("systemd-socket-activate", "systemd")
    path = tmp_path / "timing.sock"
    command = [activate, f"--listen={path}", *COMMAND, "serve", "--http", "127.0.0.1:0"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/"
    )
    assert process.stderr is not None
    assert process.stderr.readline().startswith("Listening on")
    observer = TimingObserver(str(path))
    observer.begin(Operation("m", 1))
    with running(process) as sidecar:
        assert sidecar.socket == path
        wait_until(sidecar.timing, lambda answer: answer["delivery"]["applied"] == 1)
        observer.close()  # not before: it waits for a moment only
        assert sidecar.stop(signal.SIGTERM) == 0
