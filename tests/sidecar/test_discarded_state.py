"""A state that is of the past, since the sidecar went on in memory, is never gone on from."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from lilo_sidecar.state.files import remove_file
from lilo_sidecar.web.query import TimingQuery
from support.feed import span
from support.journaled import Clock, begun, epoch, executions, killed, open_recorder
from support.unreachable import full_disk, place_of_a_user


def test_kill_at_any_moment_of_a_discard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No state is left that could be gone on from: neither the newest nor one before it, which
    somebody has put back."""

    class KilledError(BaseException):
        pass

    for kept in range(12):
        path, left = tmp_path / str(kept), kept
        recorder, _ = begun(path)
        recorder._begin()
        shutil.copy(path / "snapshot-2", path / "snapshot-1")

        def remove(file: Path) -> None:
            nonlocal left
            if not left:
                raise KilledError
            left -= 1
            remove_file(file)

        monkeypatch.setattr("lilo_sidecar.state.directory.remove_file", remove)
        assert recorder._directory is not None
        with contextlib.suppress(KilledError):
            recorder._directory.discard()
        monkeypatch.undo()
        killed(recorder)
        again = open_recorder(path, Clock())
        assert epoch(again) != epoch(recorder)
        assert executions(again) == 0


@pytest.fixture
def place() -> Iterator[Path]:
    with place_of_a_user() as found:
        yield found


def test_nothing_comes_again_from_a_directory_that_became_read_only(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What cannot be removed is made worthless: a reader that was served from memory meanwhile is
    given nothing twice. The log says that the figures begin anew."""
    path = place / "state"
    recorder, engine = begun(path)
    path.chmod(0o500)
    with full_disk():
        engine.send(recorder, span(["m"], 1, 2))
    assert recorder.status.reason == "File too large"
    engine.send(recorder, span(["m"], 2, 3))
    told = recorder.timing(TimingQuery("m", True, "loop")).interval
    killed(recorder)
    path.chmod(0o700)
    again = open_recorder(path, Clock())
    assert again.status.writing
    assert epoch(again) != epoch(recorder)
    assert executions(again) == 0
    assert told.cursor is not None
    assert sum("begin anew" in message for message in caplog.messages) == 1


@pytest.mark.parametrize("full", [False, True])
def test_nothing_comes_again_from_a_directory_that_is_read_only_at_the_start(
    place: Path, full: bool
) -> None:
    """No journal is open then. Also on a full disk, and with other things in the way."""
    path = place / "state"
    before, _ = begun(path)
    (path / "snapshot-0").mkdir()
    killed(before)
    path.chmod(0o500)
    with full_disk() if full else contextlib.nullcontext():
        recorder = open_recorder(path, Clock())
        assert executions(recorder) == 1, "what there was is known, for the time being"
        assert not recorder.status.writing
    killed(recorder)
    path.chmod(0o700)
    again = open_recorder(path, Clock())
    assert epoch(again) != epoch(recorder)
    assert executions(again) == 0


def test_directory_that_can_be_written_to_again_has_all(place: Path) -> None:
    """It is tried until it works; then the journal begins with what came meanwhile."""
    path = place / "state"
    recorder, engine = begun(path)
    path.chmod(0o500)
    with full_disk():
        engine.send(recorder, span(["m"], 1, 2))
    recorder.tend()
    assert recorder.status.reason == "Permission denied"
    engine.send(recorder, span(["m"], 2, 3))
    path.chmod(0o700)
    recorder.tend()
    assert recorder.status.writing
    killed(recorder)
    assert executions(open_recorder(path, Clock())) == 3


@pytest.mark.parametrize("missing", [False, True])
def test_snapshot_without_a_journal_is_of_the_past(
    tmp_path: Path, missing: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever took it away: the cursors that were given out after it must not be given again."""
    path = tmp_path / "state"
    recorder, _ = begun(path)
    recorder._begin()
    killed(recorder)
    if missing:
        (path / "journal-2").unlink()
    else:
        os.truncate(path / "journal-2", 0)
    again = open_recorder(path, Clock())
    assert again.status.writing
    assert epoch(again) != epoch(recorder)
    (line,) = [record for record in caplog.records if "begin anew" in record.message]
    assert line.levelname == "WARNING"


def test_state_that_could_not_be_read_at_the_start_is_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A sidecar that began without it does not delete it once it may write: that is somebody's."""
    path = tmp_path / "state"
    recorder, _ = begun(path)
    killed(recorder)
    left = (path / "snapshot-1").read_bytes()
    path.chmod(0o770)
    again = open_recorder(path, Clock())
    assert not again.status.writing
    path.chmod(0o700)
    again.tend()
    assert again.status.writing
    assert (path / "snapshot-1.aside").read_bytes() == left
    assert (path / "journal-1.aside").exists()
    assert "did not go on from; it is set aside" in caplog.text
