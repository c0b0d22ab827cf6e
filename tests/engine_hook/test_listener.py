"""To whom the hook tells what it knows: nobody but the sidecar of its own user, of root, or of a
user that was given the place."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lilo_engine_hook import TimingObserver
from support.logs import logged
from support.operations import Operation
from support.receiver import receiver
from support.reporting import seqs
from support.sidecar import Output, running, wait_until

STRANGER = 65534
ANOTHER = 65533
LISTEN = """
import os, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o666)
os.setgroups([])
os.setuid(int(sys.argv[2]))
listener.listen(64)
print("listening", flush=True)
while True:
    connection, _ = listener.accept()
    print("got", len(connection.recv(65536)), flush=True)
"""
SERVE = """
import os, pkgutil, sys
import encodings.ascii, encodings.latin_1, encodings.idna, lilo_sidecar
for module in pkgutil.walk_packages(lilo_sidecar.__path__, "lilo_sidecar."):
    if not module.name.endswith("__main__"):
        __import__(module.name)  # while it may still read the installation
os.setgroups([])
os.setuid(int(sys.argv.pop(1)))
sys.exit(sys.modules["lilo_sidecar.cli"].main())
"""
pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user"),
    pytest.mark.usefixtures("patient"),
]


@contextlib.contextmanager
def listening(path: Path, uid: int) -> Iterator[Output]:
    """A process of that user listens there; what it got is told line by line."""
    command = [sys.executable, "-c", LISTEN, str(path), str(uid)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd="/") as process:
        assert process.stdout is not None
        output = Output(process.stdout)
        try:
            output.wait_for(lambda line: line == "listening")
            yield output
        finally:
            process.kill()


@pytest.fixture
def around() -> Iterator[Path]:
    """A directory of root's that all can enter: pytest keeps its own to itself."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o711)
        yield Path(place)


def given(directory: Path, uid: int = STRANGER, mode: int = 0o711) -> Path:
    """A new directory of that user's."""
    directory.mkdir()
    directory.chmod(mode)
    os.chown(directory, uid, -1)
    return directory


def in_tmp(around: Path) -> Path:
    return given(given(around / "everybodys", 0, 0o1777) / "place")


def deeper_in_tmp(around: Path) -> Path:
    return given(in_tmp(around) / "deeper")


def behind_a_link(around: Path) -> Path:
    link = given(around / "everybodys", 0, 0o1777) / "link"
    link.symlink_to(given(around / "place"))
    os.chown(link, STRANGER, -1, follow_symlinks=False)
    return link


def writable_by_others(around: Path) -> Path:
    return given(around / "place", mode=0o731)


def in_anothers(around: Path) -> Path:
    return given(given(around / "anothers", ANOTHER) / "place")


def of_root(around: Path) -> Path:
    return given(around / "place", 0)


def of_another(around: Path) -> Path:
    return given(around / "place", ANOTHER)


@pytest.mark.parametrize(
    "placed",
    [
        *(in_tmp, deeper_in_tmp, behind_a_link, writable_by_others),
        *(in_anothers, of_root, of_another),
    ],
)
def test_nothing_is_told_to_a_stranger(
    around: Path, placed: Callable[[Path], Path], caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever took the place, in whatever way: it gets not one byte, though it is tried again as
    if nobody were there; the log says who it is, once; and what was to be told waits for the
    sidecar."""
    path = placed(around) / "timing.sock"
    with listening(path, STRANGER) as stranger:
        observer = TimingObserver(path)
        observer.begin(Operation("m", 0))
        wait_until(lambda: stranger.lines.count("got 0"), lambda count: count >= 2)
        assert set(stranger.lines) == {"listening", "got 0"}
    path.unlink()
    with receiver(path) as far:
        far.wait_for(lambda: len(far.events) == 1)
        observer.close()
        assert seqs(far) == [0]
    (warning,) = [each for each in logged(caplog) if each.levelno >= logging.WARNING]
    assert f"uid {STRANGER} listens at {path}" in warning.getMessage()
    assert "nothing is sent there" in warning.getMessage()


def in_a_shared_volume(around: Path) -> Path:
    return given(given(around / "volume", 0, 0o777) / "place")


def behind_a_link_of_roots(around: Path) -> Path:
    (around / "link").symlink_to(given(around / "place"))
    return around / "link"


def deeper(around: Path) -> Path:
    return given(given(around / "home") / "place")


@pytest.mark.parametrize("placed", [in_a_shared_volume, behind_a_link_of_roots, deeper])
def test_user_that_was_given_the_place_is_trusted(
    around: Path, placed: Callable[[Path], Path], caplog: pytest.LogCaptureFixture
) -> None:
    """A sidecar that runs as a user of its own listens in a directory of its own."""
    path = placed(around) / "timing.sock"
    with listening(path, STRANGER) as sidecar:
        observer = TimingObserver(path)
        observer.begin(Operation("m", 0))
        sidecar.wait_for(lambda line: line.startswith("got ") and line != "got 0")
    assert logged(caplog) == []
    path.unlink()
    with receiver(path):
        observer.close()


def test_sidecar_of_another_user_is_told_everything(around: Path) -> None:
    """The whole of it: the sidecar allows the trainer's user, root here, and the trainer trusts
    the sidecar's."""
    path = given(around / "place") / "timing.sock"
    command = [sys.executable, "-c", SERVE, str(STRANGER), "serve", "--socket", str(path)]
    process = subprocess.Popen(
        command, text=True, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with running(process) as sidecar:
        observer = TimingObserver(path)
        observer.span("m", "forward_backward", "gpu", 0.0, 1.0)
        observer.close()
        execute = sidecar.timing("m")["phases"]["forward_backward.execute"]
        assert execute["count"] == 1
