"""Where `lilo-sidecar trace -o FILE` writes, and what becomes of what is there."""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lilo_sidecar.errors import StartError
from lilo_sidecar.trace import _opened, export
from support.containers import needs_root, volume
from support.journaled import begun, killed
from support.traces import Trace, trace_options
from support.unreachable import full_disk, in_time, place_of_a_user

THEIRS = "somebody else's\n"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """With one span in its journal."""
    killed(begun(tmp_path / "state")[0])
    return tmp_path / "state"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """An empty directory."""
    (tmp_path / "place").mkdir()
    return tmp_path / "place"


def write(state: Path, file: Path) -> None:
    """`lilo-sidecar trace -o FILE`. Raises `StartError`."""
    assert export(trace_options("--state-dir", state, "-o", file, "--last", "1h")) == 0


def assert_whole(content: str) -> None:
    """It is a trace with that span."""
    assert len(Trace(json.loads(content)["traceEvents"]).on("gpu")) == 1


def refused(state: Path, file: Path) -> str:
    """Why it writes nothing."""
    with pytest.raises(StartError) as refusal:
        write(state, file)
    return str(refusal.value)


def test_file_that_is_there_is_not_written_into(state: Path, place: Path) -> None:
    """Another takes its name, for this user alone: who may read the one that was there, or has it
    under another name, has no part of the trace."""
    file, other_name = place / "trace.json", place / "other-name"
    file.write_text(THEIRS)
    file.chmod(0o666)
    other_name.hardlink_to(file)
    with file.open() as reader:
        write(state, file)
        assert reader.read() == other_name.read_text() == THEIRS
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert_whole(file.read_text())
    assert sorted(place.iterdir()) == [other_name, file]


@pytest.mark.parametrize("dangling", [False, True])
def test_link_is_replaced_and_its_target_left(state: Path, place: Path, dangling: bool) -> None:
    """Whoever made the link does not say what is overwritten, or made."""
    file, target = place / "trace.json", place / "target"
    if not dangling:
        target.write_text(THEIRS)
    file.symlink_to(target)
    write(state, file)
    assert not file.is_symlink()
    assert_whole(file.read_text())
    assert (None if dangling else THEIRS) == (target.read_text() if target.exists() else None)


@pytest.mark.parametrize("linked", [False, True])
def test_pipe_is_written_to_and_stays(state: Path, place: Path, linked: bool) -> None:
    """By its own name, or by that of a link to it, as /dev/stdout is one."""
    pipe = place / "pipe"
    os.mkfifo(pipe)
    file = place / "link" if linked else pipe
    if linked:
        file.symlink_to(pipe)
    heard: list[str] = []
    reader = threading.Thread(target=lambda: heard.append(pipe.read_text()), daemon=True)
    reader.start()
    with in_time():
        write(state, file)
        reader.join()
    assert_whole(heard[0])
    assert pipe.is_fifo()
    assert file.is_symlink() == linked


def test_trace_that_fails_half_way_leaves_what_was_there(state: Path, place: Path) -> None:
    """And nothing else: neither a half of it under that name, nor under another one."""
    file = place / "trace.json"
    with full_disk():
        assert refused(state, file) == f"{file} cannot be written: File too large"
    assert list(place.iterdir()) == []
    file.write_text(THEIRS)
    with full_disk():
        assert refused(state, file) == f"{file} cannot be written: File too large"
    assert list(place.iterdir()) == [file]
    assert file.read_text() == THEIRS


def test_trace_that_is_interrupted_leaves_what_was_there(place: Path) -> None:
    """As one that fails: Ctrl-C, say."""
    file = place / "trace.json"
    file.write_text(THEIRS)

    def interrupted() -> None:
        with _opened(str(file)) as half:
            half.write("half of it")
            half.flush()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(place.iterdir()) == [file]
    assert file.read_text() == THEIRS


@pytest.fixture
def as_a_user() -> Iterator[Path]:
    """A directory of a user whom modes apply to, as whom the test goes on."""
    with place_of_a_user() as place:
        yield place


def test_directory_that_may_not_be_written_to(as_a_user: Path) -> None:
    """What is in it stays, though this user may write to the file itself."""
    closed, file = as_a_user / "closed", as_a_user / "closed" / "trace.json"
    killed(begun(as_a_user / "state")[0])
    closed.mkdir()
    file.write_text(THEIRS)
    closed.chmod(0o500)
    assert refused(as_a_user / "state", file) == f"{file} cannot be written: Permission denied"
    assert list(closed.iterdir()) == [file]
    assert file.read_text() == THEIRS


@needs_root
def test_file_of_another_user_where_all_may_write() -> None:
    """In a directory like /tmp nobody's files are another one's to replace: it stays, and nothing
    is left beside it."""
    with volume(0o1777) as shared:
        file = shared / "trace.json"
        file.write_text(THEIRS)
        file.chmod(0o666)
        with place_of_a_user() as place:
            killed(begun(place / "state")[0])
            reason = refused(place / "state", file)
        assert reason == f"{file} cannot be written: Operation not permitted"
        assert list(shared.iterdir()) == [file]
        assert file.read_text() == THEIRS
