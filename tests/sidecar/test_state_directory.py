"""The state directory, whatever somebody else has put there, or taken away."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from lilo_sidecar.state import directory as state_directory
from lilo_sidecar.state.directory import MAX_BYTES, StateDirectory
from lilo_sidecar.state.files import MAX_NUMBER
from lilo_sidecar.state.journal import MAGIC, JournalFile
from lilo_sidecar.state.recovery import recover
from support.feed import span
from support.journaled import Clock, begun, executions, killed, open_recorder
from support.unreachable import descriptors, full_disk, in_time


def test_begin_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    """No descriptor and no file: the disk still held the snapshot, and not its journal."""
    directory = StateDirectory(tmp_path)
    directory.open()
    before = descriptors()
    with full_disk():
        for _ in range(3):
            with pytest.raises(OSError, match="No space left"):
                directory.begin(b"snapshot")
    assert descriptors() == before
    assert [file.name for file in tmp_path.iterdir()] == ["lock"]
    directory.close()


def test_begin_that_fails_at_the_last_moment_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something has come to be where the snapshot was to be."""
    directory = StateDirectory(tmp_path)
    directory.open()
    before = descriptors()

    def begun_late(path: Path) -> JournalFile:
        (tmp_path / "snapshot-1").mkdir()
        return JournalFile(path)

    monkeypatch.setattr("lilo_sidecar.state.directory.JournalFile", begun_late)
    with pytest.raises(IsADirectoryError):
        directory.begin(b"snapshot")
    assert descriptors() == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["lock", "snapshot-1"]
    directory.close()


def test_snapshots_hold_no_descriptors(tmp_path: Path) -> None:
    """The journal before is closed."""
    recorder, _ = begun(tmp_path / "state")
    before = descriptors()
    for _ in range(3):
        recorder._begin()
    assert descriptors() == before


KINDS = ("pipe", "loop", "link", "directory")


def unreadable(path: Path, kind: str) -> None:
    """Something that is no file takes the place of one; a link leads to the same, elsewhere."""
    if path.exists():
        path.rename(path.parent.parent / "elsewhere")
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "loop":
            path.symlink_to(path)
        case "link":
            (path.parent.parent / "elsewhere").touch()
            path.symlink_to(path.parent.parent / "elsewhere")
        case "directory":
            path.mkdir()
            (path / "file").touch()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["snapshot-1", "journal-1"])
def test_state_that_cannot_be_read_is_set_aside(
    tmp_path: Path, name: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One line says so, both files are kept for people to look at, and the sidecar starts."""
    path = tmp_path / "state"
    killed(begun(path)[0])
    unreadable(path / name, kind)
    before = descriptors()
    with in_time():
        recorder = open_recorder(path, Clock())
    assert descriptors() == before + 2, "the lock and the journal"
    assert recorder.status.writing
    assert executions(recorder) == 0
    (line,) = [record for record in caplog.records if "set aside" in record.message]
    assert line.levelname == "WARNING"
    assert {"snapshot-1.aside", "journal-1.aside"} <= {file.name for file in path.iterdir()}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_none_of_ours_is_in_nobodys_way(tmp_path: Path, kind: str) -> None:
    """In the place of the next files, of older ones or of what is set aside: the state goes on,
    over several snapshots and starts, and all of that stays where it is."""
    path = tmp_path / "state"
    recorder, engine = begun(path)
    names = ["snapshot-0", "journal-0.aside", "snapshot-2.new", "journal-2", "snapshot-3"]
    names += ["snapshot-9", "journal-4.new"]
    for name in names:
        unreadable(path / name, kind)
    if kind == "link":
        (tmp_path / "elsewhere").write_bytes(b"not ours")
    for number in range(1, 5):
        with in_time():
            recorder._begin()
            assert recorder.status.writing
            engine.send(recorder, span(["m"], number, number + 1))
            killed(recorder)
            recorder = open_recorder(path, Clock())
        assert executions(recorder) == number + 1
        engine.greet(recorder)
    recorder._stop_writing("for a reason")
    assert sorted(file.name for file in path.iterdir()) == sorted(["lock", *names])
    if kind == "link":
        assert (tmp_path / "elsewhere").read_bytes() == b"not ours"


def test_names_of_any_number_are_in_nobodys_way(tmp_path: Path) -> None:
    """Those that the next one could not be named after are not ours."""
    path = tmp_path / "state"
    recorder, _ = begun(path)
    for number in (MAX_NUMBER + 1, 10**18 - 1):
        (path / f"snapshot-{number}").write_bytes(b"not ours")
    for _ in range(2):
        killed(recorder)
        recorder = open_recorder(path, Clock())
        assert recorder.status.writing
        assert executions(recorder) == 1


def test_last_number_is_not_the_end(tmp_path: Path) -> None:
    """Somebody gave it to a state: after a moment in memory the numbers begin anew."""
    path = tmp_path / "state"
    killed(begun(path)[0])
    for kind in ("snapshot", "journal"):
        (path / f"{kind}-1").rename(path / f"{kind}-{MAX_NUMBER}")
    recorder = open_recorder(path, Clock())
    assert executions(recorder) == 1
    assert "no number left" in str(recorder.status.reason)
    recorder.tend()
    assert recorder.status.writing
    killed(recorder)
    assert executions(open_recorder(path, Clock())) == 1


def test_last_number_of_what_is_no_state_is_nothing(tmp_path: Path) -> None:
    """It is set aside, and the numbers begin anew at once."""
    (tmp_path / "state").mkdir(0o700)
    for kind in ("snapshot", "journal"):
        (tmp_path / "state" / f"{kind}-{MAX_NUMBER}").write_bytes(b"not ours")
    assert open_recorder(tmp_path / "state", Clock()).status.writing


def test_directory_is_listed_once_for_a_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many files were set aside: nothing else runs meanwhile."""
    directory = StateDirectory(tmp_path)
    directory.open()
    for number in range(300):
        (tmp_path / f"snapshot-{number}.aside").write_bytes(bytes(100))
    looks: list[Path] = []
    scan = os.scandir

    def counted(path: Path) -> os._ScandirIterator[str]:
        looks.append(path)
        return scan(path)

    monkeypatch.setattr(state_directory, "MAX_BYTES", 20_000 + state_directory._MAX_JOURNAL)
    monkeypatch.setattr(os, "scandir", counted)
    directory.begin(bytes(1000)).close()
    monkeypatch.undo()
    assert looks == [tmp_path]
    left = sorted(int(file.name[9:-6]) for file in tmp_path.glob("*.aside"))
    assert left == list(range(110, 300)), "the oldest go first, and no more than have to"
    directory.close()


def test_journal_that_somebody_made_larger_goes_with_its_generation(tmp_path: Path) -> None:
    """It would take the room of all others, as the one before the present."""
    path = tmp_path / "state"
    recorder, engine = begun(path)
    os.truncate(path / "journal-1", 2 * MAX_BYTES)
    recorder._begin()
    engine.send(recorder, span(["m"], 1, 2))
    assert recorder.status.writing
    assert sum(file.stat().st_size for file in path.iterdir()) < MAX_BYTES
    killed(recorder)
    assert executions(open_recorder(path, Clock())) == 2


@pytest.mark.parametrize("rotation", [False, True])
def test_removed_lock_is_noticed(tmp_path: Path, rotation: bool) -> None:
    """Another sidecar has come meanwhile: the first one goes on in memory, and touches nothing of
    what the other writes."""
    path = tmp_path / "state"
    first, engine = begun(path)
    (path / "lock").unlink()
    second = open_recorder(path, Clock())
    assert second.status.writing
    engine.greet(second)
    engine.send(second, span(["m"], 1, 2))
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    if rotation:
        first._limit = 0
        first.disconnect(engine.who.boot_id)
    else:
        first.tend()
    assert first.status.reason == "another sidecar uses the state directory"
    del before["journal-1"]  # the first one's own, by which nobody goes
    assert {file.name: file.read_bytes() for file in path.iterdir()} | before == {
        **before,
        "journal-1": b"",
    }
    killed(second)
    assert executions(open_recorder(path, Clock())) == 2


def test_removed_lock_is_put_back(tmp_path: Path) -> None:
    """Nobody has come: the state directory stays this sidecar's."""
    path = tmp_path / "state"
    recorder, _ = begun(path)
    (path / "lock").unlink()
    recorder.tend()
    assert recorder.status.writing
    assert open_recorder(path, Clock()).status.reason == "another sidecar uses the state directory"


def test_parents_are_made_for_this_user_alone(tmp_path: Path) -> None:
    """Whatever the umask lets through."""
    before = os.umask(0)
    try:
        StateDirectory(tmp_path / "a" / "b" / "state").open()
    finally:
        os.umask(before)
    for path in ("a", "a/b", "a/b/state"):
        assert (tmp_path / path).stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a directory away")
def test_directory_of_another_user_is_not_used(tmp_path: Path) -> None:
    """The reason says whose it is; that others may write to it is another one."""
    (tmp_path / "state").mkdir(0o700)
    os.chown(tmp_path / "state", 4242, -1)
    recorder = open_recorder(tmp_path / "state", Clock())
    assert recorder.status.reason == (
        "the state directory belongs to uid 4242; give --state-dir a directory of the sidecar's "
        "own, which is made if missing"
    )


def test_close_never_raises(tmp_path: Path) -> None:
    """An error of the file system's must not keep the sidecar from going on, or from its end."""
    directory = StateDirectory(tmp_path)
    directory.open()
    assert directory._lock is not None
    os.close(directory._lock)
    directory.close()
    directory.open()
    directory.close()


def test_sealed_state_that_is_broken_is_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its checksum is right, and only what is done with it fails: the sidecar starts."""
    path = tmp_path / "state"
    recorder, _ = begun(path)
    producers = recorder._core._producers
    producers.shared = replace(producers.shared, departed=1)  # type: ignore[arg-type]
    recorder._begin()
    killed(recorder)
    directory = StateDirectory(path)
    assert recover(directory, 0.0).health(0.0).last_heard is None
    (line,) = [record for record in caplog.records if "set aside" in record.message]
    assert "it holds a broken state: " in line.message
    assert (path / "snapshot-2.aside").exists()
    assert (path / "journal-2.aside").read_bytes() == MAGIC
    directory.close()
