"""Who may report: told by the kernel, not by the producer."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lilo_engine_hook import TimingObserver
from lilo_sidecar.intake.peers import MAX_TOLD, Peer, Peers, peer_of
from support.producer import Producer
from support.sidecar import SidecarProcess, start_sidecar

STRANGER = 65534
ANOTHER = 65533
REPORT = """
import logging, os, sys, threading
said = threading.Event()
class Handler(logging.StreamHandler):
    def emit(self, record):
        super().emit(record)
        said.set()
logging.basicConfig(format="%(message)s", handlers=[Handler(sys.stdout)])
import encodings.ascii, lilo_engine_hook, msgpack  # while it may still read the installation
os.setgroups([])
os.setgid(int(sys.argv[2]))
os.setuid(int(sys.argv[2]))
observer = lilo_engine_hook.TimingObserver(sys.argv[1])
observer.span("m", "forward_backward", "gpu", 0.0, 1.0)
while observer._sender.undelivered and not said.wait(0.01):
    pass  # on a busy machine that may take longer than the end of a trainer waits for it
observer.close()
"""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def report(socket_path: Path, uid: int) -> str:
    """Have a trainer of that user report one execution; what its log says."""
    done = subprocess.run(
        [sys.executable, "-c", REPORT, str(socket_path), str(uid)],
        capture_output=True,
        text=True,
        cwd="/",
        timeout=20,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture
def entered() -> Iterator[Path]:
    """A place that other users can reach: pytest keeps its own to itself."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o711)
        yield Path(place, "shared")


def executions(sidecar: SidecarProcess) -> int:
    """Reported and counted by now."""
    phases = sidecar.timing("m")["phases"]
    return int(phases["forward_backward.execute"]["count"]) if phases else 0


def test_peer_is_the_process_that_connected() -> None:
    """As the kernel has it."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peer_of(ours) == Peer(os.getpid(), os.geteuid())


def test_own_user_and_root_and_those_allowed_may_report() -> None:
    """Nobody else; whoever may not is told which user it is and what to do."""
    peers = Peers(frozenset({ANOTHER}))
    for uid in (0, os.geteuid(), ANOTHER):
        assert peers.objection(Peer(1, uid)) is None
    objection = peers.objection(Peer(1, STRANGER))
    assert objection is not None
    assert f"uid {STRANGER} may not report" in objection
    assert f"--allow-uid {STRANGER}" in objection


def test_log_tells_of_each_user_once(caplog: pytest.LogCaptureFixture) -> None:
    """However often it tries, and however many users there are."""
    caplog.set_level(logging.INFO)
    peers = Peers()
    for _ in range(3):
        for uid in range(STRANGER - MAX_TOLD - 9, STRANGER + 1):
            assert peers.objection(Peer(7, uid)) is not None
    assert len(caplog.messages) == MAX_TOLD
    assert len(set(caplog.messages)) == MAX_TOLD
    assert all("connection from pid 7 refused: " in message for message in caplog.messages)


@needs_root
def test_other_users_cannot_reach_the_socket(entered: Path) -> None:
    """By default, the directory and the socket keep them out already."""
    with start_sidecar(entered, "--socket", entered / "timing.sock") as sidecar:
        assert "may not connect to the sidecar" in report(sidecar.socket, STRANGER)
        assert sidecar.health()["ingest"]["refused_peers"] == 0


@needs_root
def test_user_that_is_not_allowed_is_refused(entered: Path) -> None:
    """Where it can reach the socket, the kernel says who it is: it is told what to do, counted,
    logged once, and nothing of it counts; nobody else is held up."""
    with start_sidecar(entered, "--socket", entered / "timing.sock") as sidecar:
        entered.chmod(0o711)
        sidecar.socket.chmod(0o666)
        for _ in range(2):
            said = report(sidecar.socket, STRANGER)
            assert "refuses this trainer" in said
            assert f"uid {STRANGER} may not report" in said
            assert f"--allow-uid {STRANGER}" in said
        ingest = sidecar.health()["ingest"]
        assert ingest["refused_peers"] >= 2  # a trainer may try again when it ends
        assert ingest["connections"] == 0
        assert (ingest["protocol_errors"], ingest["refused_connections"]) == (0, 0)
        assert executions(sidecar) == 0
        with Producer(sidecar.socket) as own:
            own.greet()
            assert own.work() == 1
        sidecar.stop()
        (line,) = sidecar.log.rest()
        assert f"uid {STRANGER} may not report" in line


@needs_root
def test_strangers_take_no_room(entered: Path) -> None:
    """However many of them come, as fast as they can, and stay connected: they hold nothing of
    the sidecar's at any moment, and whoever may report is heard."""
    script = """
import os, socket, sys
os.setgroups([])
os.setuid(int(sys.argv[2]))
print("ready", flush=True)
held = []
while not os.path.exists(sys.argv[3]):
    held.append(socket.socket(socket.AF_UNIX))
    try:
        held[-1].connect(sys.argv[1])
    except OSError:
        pass
    del held[:-200]
"""
    flooding = 4
    end = entered.parent / "end"
    with contextlib.ExitStack() as held:
        sidecar = held.enter_context(start_sidecar(entered, "--socket", entered / "timing.sock"))
        entered.chmod(0o711)
        sidecar.socket.chmod(0o666)
        own = held.enter_context(Producer(sidecar.socket, "own"))
        assert own.greet() == 0
        assert sidecar.health()["producers"] == 1  # the client's connection is there, too
        open_before = len(list(Path(f"/proc/{sidecar.process.pid}/fd").iterdir()))
        for _ in range(flooding):
            strangers = held.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", script, str(sidecar.socket), str(STRANGER), str(end)],
                    stdout=subprocess.PIPE,
                    text=True,
                    cwd="/",
                )
            )
            assert strangers.stdout is not None
            assert strangers.stdout.readline() == "ready\n"
        try:
            newcomer = TimingObserver(sidecar.socket)  # it tries again where it found no room
            held.callback(newcomer.close)
            newcomer.span("m", "forward_backward", "gpu", 0.0, 1.0)
            refused = 0
            while refused < 5000 or executions(sidecar) < 1:
                assert own.work(["own"]) == own.sent
                refused = sidecar.health()["ingest"]["refused_peers"]
                now_open = len(list(Path(f"/proc/{sidecar.process.pid}/fd").iterdir()))
                assert now_open <= open_before + 2, refused  # the newcomer's, and one of theirs
        finally:
            end.touch()


@needs_root
def test_user_that_is_allowed_reports(entered: Path) -> None:
    """It reaches the socket without further ado, whatever the umask; another one does not
    become welcome by that."""
    before = os.umask(0o077)
    try:
        with start_sidecar(
            *(entered, "--socket", entered / "timing.sock", "--allow-uid", str(STRANGER)),
        ) as sidecar:
            assert stat.S_IMODE(entered.stat().st_mode) == 0o711
            assert stat.S_IMODE(sidecar.socket.stat().st_mode) == 0o666
            assert report(sidecar.socket, STRANGER) == ""
            assert executions(sidecar) == 1
            assert "refuses this trainer" in report(sidecar.socket, ANOTHER)
            assert executions(sidecar) == 1
    finally:
        os.umask(before)
