"""The recorder when its journal cannot be written, and when it can again."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import trio.testing

from lilo_sidecar.core.critical_path import CriticalPath
from lilo_sidecar.state import snapshot
from lilo_sidecar.state.directory import StateDirectory
from lilo_sidecar.state.recorder import TEND_INTERVAL, JournalStatus, Recorder
from lilo_sidecar.web.query import TimingQuery
from support.feed import begin, hello, span
from support.journaled import Client, Clock, open_recorder
from support.unreachable import full_disk as no_room


@pytest.fixture
def engine() -> Client:
    return Client(hello())


@pytest.fixture
def full_disk() -> Iterator[None]:
    """No file may grow past a few bytes."""
    with no_room():
        yield


def room_again() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)


def executions(recorder: Recorder) -> int:
    return recorder.timing(TimingQuery("m")).phases["forward_backward.execute"].count


def test_full_disk_costs_no_event(
    tmp_path: Path, engine: Client, full_disk: None, caplog: pytest.LogCaptureFixture
) -> None:
    """At the start and later: it goes on in memory and says so once; when there is room again the
    journal begins with all that came meanwhile."""
    recorder = open_recorder(tmp_path / "state", Clock())
    assert recorder.status == JournalStatus(False, "File too large")
    engine.greet(recorder)
    engine.send(recorder, span(["m"], 0, 1))
    recorder.tend()
    assert not recorder.status.writing
    room_again()
    recorder.tend()
    assert recorder.status.writing
    engine.send(recorder, span(["m"], 1, 2))
    (journal,) = (tmp_path / "state").glob("journal-*")
    resource.setrlimit(resource.RLIMIT_FSIZE, (journal.stat().st_size + 5, resource.RLIM_INFINITY))
    engine.send(recorder, span(["m"], 2, 3))
    assert recorder.status == JournalStatus(False, "No space left on device")
    assert list((tmp_path / "state").glob("*-*")) == [], "what is there is of the past"
    engine.send(recorder, span(["m"], 3, 4))
    room_again()
    recorder.tend()
    engine.send(recorder, span(["m"], 4, 5))
    recorder.close()
    again = open_recorder(tmp_path / "state", Clock())
    assert executions(again) == 5
    assert [r.levelname for r in caplog.records if "cannot be written" in r.message] == [
        "WARNING",
        "WARNING",
    ]


def test_state_too_large_goes_on_in_memory(
    tmp_path: Path, engine: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason is in the status, with the figures."""
    monkeypatch.setattr(snapshot, "MAX_SNAPSHOT", 100)
    recorder = open_recorder(tmp_path / "state", Clock())
    assert recorder.status.reason is not None
    assert "of 100 at most" in recorder.status.reason
    engine.greet(recorder)
    engine.send(recorder, span(["m"], 0, 1))
    assert executions(recorder) == 1


def test_state_too_large_is_tried_less_and_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each try takes as long as a snapshot; the log hears of it once, also as the state grows."""
    looks: list[int] = []

    def noted(core: CriticalPath) -> bytes:
        looks.append(look)
        return snapshot.dump(core)

    monkeypatch.setattr("lilo_sidecar.state.recorder.dump", noted)
    monkeypatch.setattr(snapshot, "MAX_SNAPSHOT", 100)
    look = 0
    recorder = open_recorder(tmp_path / "state", Clock())
    engine = Client(hello())
    engine.greet(recorder)
    for look in range(1, 53):
        engine.send(recorder, span([f"m{look}"], look, look + 1))
        recorder.tend()
    assert looks == [0, 2, 6, 14, 26, 38, 50]
    assert len([r for r in caplog.records if "cannot be written" in r.message]) == 1
    monkeypatch.setattr(snapshot, "MAX_SNAPSHOT", 1 << 20)
    for look in range(53, 63):  # noqa: B007 - noted above
        recorder.tend()
    assert recorder.status.writing
    assert looks[-1] == 62
    with no_room():
        engine.send(recorder, span(["m"], 53, 54))
    assert not recorder.status.writing
    recorder.tend()
    assert recorder.status.writing, "any other reason is looked after each time"
    monkeypatch.setattr(snapshot, "MAX_SNAPSHOT", 100)
    recorder._begin()
    recorder.tend()
    monkeypatch.setattr(snapshot, "MAX_SNAPSHOT", 1 << 20)
    recorder.tend()
    assert recorder.status.writing, "it begins anew with a short time"
    assert len([r for r in caplog.records if "cannot be written" in r.message]) == 3


def test_fault_in_writing_the_state_costs_no_figures(tmp_path: Path, engine: Client) -> None:
    """Something that cannot be written is in it: it goes on in memory, and says where it was."""
    core = CriticalPath()
    core._producers.last_heard = object()  # type: ignore[assignment]
    recorder = Recorder(core, StateDirectory(tmp_path / "state"), Clock())
    assert str(recorder.status.reason).startswith("a fault of the sidecar: TypeError at")
    engine.greet(recorder)
    engine.send(recorder, span(["m"], 0, 1))
    assert executions(recorder) == 1
    recorder.tend()
    assert recorder.status.writing


def test_directory_is_one_sidecars(tmp_path: Path, engine: Client) -> None:
    """A second one goes on in memory until the first is gone, and touches nothing of it."""
    first = open_recorder(tmp_path / "state", Clock())
    engine.greet(first)
    engine.send(first, span(["m"], 0, 1))
    second = open_recorder(tmp_path / "state", Clock())
    assert second.status == JournalStatus(False, "another sidecar uses the state directory")
    second.tend()
    assert executions(first) == 1
    first.close()
    second.tend()
    assert second.status.writing


def test_removed_directory_is_made_again(
    tmp_path: Path, engine: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever removed it: the next look finds out, and all is written anew."""
    path = tmp_path / "state"
    recorder = open_recorder(path, Clock())
    engine.greet(recorder)
    engine.send(recorder, span(["m"], 0, 1))
    for file in path.iterdir():
        file.unlink()
    path.rmdir()
    engine.send(recorder, span(["m"], 1, 2))
    recorder.tend()
    assert "the journal was removed by somebody; a new one is begun" in caplog.messages
    recorder.close()
    assert executions(open_recorder(path, Clock())) == 2


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o722])
def test_directory_that_others_may_write_to_is_not_used(tmp_path: Path, mode: int) -> None:
    """They could put a state there. One in it, as the reason advises, is used."""
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(mode)
    recorder = open_recorder(tmp_path / "state", Clock())
    assert recorder.status == JournalStatus(
        False,
        "others may write to the state directory; give --state-dir a directory of the sidecar's "
        "own, which is made if missing: one in it will do",
    )
    assert list((tmp_path / "state").iterdir()) == []
    assert open_recorder(tmp_path / "state" / "own", Clock()).status.writing


def test_path_that_cannot_be_a_directory(tmp_path: Path) -> None:
    """A file, a loop of links: the reason is the system's."""
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name, reason in (
        ("file", "Not a directory"),
        ("file/state", "Not a directory"),
        ("loop/state", "Too many levels of symbolic links"),
    ):
        assert open_recorder(tmp_path / name, Clock()).status == JournalStatus(False, reason)


def test_directory_is_private(tmp_path: Path) -> None:
    """Whatever the umask lets through."""
    before = os.umask(0)
    try:
        open_recorder(tmp_path / "state", Clock())
    finally:
        os.umask(before)
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in (tmp_path / "state").iterdir()} == {0o600}


def test_journal_is_looked_after(tmp_path: Path) -> None:
    """Without a call from anybody, every few seconds."""
    first = open_recorder(tmp_path / "state", Clock())
    second = Recorder(CriticalPath(), StateDirectory(tmp_path / "state"), Clock())

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(second.run)
            first.close()
            await trio.sleep(TEND_INTERVAL + 1)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert second.status == JournalStatus(True, None)


def test_only_questions_that_change_the_state_are_recorded(tmp_path: Path, engine: Client) -> None:
    """A flood of looks at nothing writes nothing."""
    recorder = open_recorder(tmp_path / "state", Clock())
    engine.greet(recorder)
    engine.send(recorder, span(["m"], 0, 1))
    (journal,) = (tmp_path / "state").glob("journal-*")
    before = journal.stat().st_size
    looks = (TimingQuery(), TimingQuery("*"), TimingQuery("m"))
    for query in (*looks, TimingQuery("unknown", True, "loop")):
        recorder.timing(query)
    assert journal.stat().st_size == before
    engine.send(recorder, begin("m", 1, 2.0))  # which waits for somebody to look
    sent = journal.stat().st_size
    recorder.timing(TimingQuery("m"))
    asked = journal.stat().st_size
    assert asked > sent
    recorder.timing(TimingQuery("m"))
    assert journal.stat().st_size == asked
    recorder.timing(TimingQuery("m", True))
    assert journal.stat().st_size > asked


def test_file_that_fails_is_let_go_of(tmp_path: Path, engine: Client) -> None:
    """Whatever the system says of it then, at its close, too: the sidecar goes on, and writes
    again with the next look."""
    recorder = open_recorder(tmp_path / "state", Clock())
    engine.greet(recorder)
    assert recorder._file is not None
    os.close(recorder._file._fd)
    engine.send(recorder, span(["m"], 0, 1))
    assert recorder.status == JournalStatus(False, "Bad file descriptor")
    engine.send(recorder, span(["m"], 1, 2))
    recorder.tend()
    assert recorder.status.writing
    assert executions(recorder) == 2
    recorder.close()
