"""A journal that was to be followed by a new one, which cannot be begun: it is written on."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from lilo_sidecar.core.critical_path import CriticalPath
from lilo_sidecar.state import snapshot
from lilo_sidecar.state.directory import MAX_BYTES, MAX_OVERDUE, MAX_TAIL
from lilo_sidecar.state.journal import MAX_RECORD
from lilo_sidecar.state.recorder import JournalStatus, Recorder
from support.feed import span
from support.journaled import (
    Client,
    Clock,
    answers,
    begun,
    epoch,
    executions,
    killed,
    open_recorder,
)
from support.unreachable import descriptors, full_disk, no_descriptors, place_of_a_user

NO_DESCRIPTOR = "Too many open files"


def files(path: Path) -> set[str]:
    """Of the state, by name."""
    return {file.name for file in path.glob("*-*")}


def overdue(path: Path) -> tuple[Recorder, Client]:
    """A sidecar that is about to begin its third journal, with two spans before."""
    recorder, engine = begun(path)
    recorder._begin()
    engine.send(recorder, span(["m"], 1, 2))
    recorder._limit = 0
    return recorder, engine


def too_small_a_disk() -> AbstractContextManager[None]:
    """The journal has room on it for a while yet, and a snapshot has none."""
    return full_disk(600)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (no_descriptors, NO_DESCRIPTOR),
        (too_small_a_disk, "File too large"),
    ],
)
def test_kill_while_no_journal_can_be_begun_costs_nothing(
    tmp_path: Path,
    fault: Callable[[], AbstractContextManager[None]],
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What came before and what came since is in the journal before, from which the next sidecar
    goes on: the same answers, to the byte. The log says it once."""
    path = tmp_path / "state"
    recorder, engine = overdue(path)
    assert len(snapshot.dump(recorder._core)) > 600
    before = descriptors()
    with fault():
        engine.send(recorder, span(["m"], 2, 3))
        recorder.tend()
        engine.send(recorder, span(["m"], 3, 4))
    assert recorder.status == JournalStatus(True, None)
    assert descriptors() == before
    assert files(path) == {"journal-1", "snapshot-2", "journal-2"}
    (line,) = [r for r in caplog.records if r.levelname == "WARNING"]
    assert line.message == (
        f"no new journal can be begun: {reason}; the sidecar goes on with the one before, up to "
        "3.5 MiB, and tries again every 5 s"
    )
    recorder._core.disconnect_all(0.0)  # as they find themselves after the kill
    told = answers(recorder, ["m"])
    killed(recorder)
    again = open_recorder(path, Clock())
    assert answers(again, ["m"]) == told
    assert executions(again) == 4


def test_kill_in_a_directory_that_became_read_only_costs_nothing() -> None:
    """Nobody can make a file in it; the one that is open is written on."""
    with place_of_a_user() as place:
        path = place / "state"
        recorder, engine = overdue(path)
        path.chmod(0o500)
        engine.send(recorder, span(["m"], 2, 3))
        recorder.tend()
        assert recorder.status.writing
        killed(recorder)
        path.chmod(0o700)
        again = open_recorder(path, Clock())
        assert epoch(again) == epoch(recorder)
        assert executions(again) == 3


def test_new_journal_is_begun_as_soon_as_it_can_be(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By the next look, with all that came meanwhile."""
    caplog.set_level(logging.INFO)
    path = tmp_path / "state"
    recorder, engine = overdue(path)
    with no_descriptors():
        engine.send(recorder, span(["m"], 2, 3))
    recorder.tend()
    assert caplog.messages[-1] == "a new journal is begun"
    assert files(path) == {"journal-1", "journal-2", "snapshot-3", "journal-3"}
    engine.send(recorder, span(["m"], 3, 4))
    recorder.tend()
    assert "snapshot-3" in files(path), "it is overdue no more"
    killed(recorder)
    assert executions(open_recorder(path, Clock())) == 4


def test_new_journal_is_tried_with_each_look_and_not_with_each_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each try takes as long as a snapshot."""
    recorder, engine = overdue(tmp_path / "state")
    tries = 0

    def counted(core: CriticalPath) -> bytes:
        nonlocal tries
        tries += 1
        return snapshot.dump(core)

    monkeypatch.setattr("lilo_sidecar.state.recorder.dump", counted)
    with no_descriptors():
        for number in range(50):
            engine.send(recorder, span(["m"], number, number + 1))
        assert tries == 1
        recorder.tend()
        recorder.tend()
        assert tries == 3


def test_overdue_journal_is_bounded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """At MAX_OVERDUE more than a journal has otherwise it goes on in memory, and says so: what is
    there is of the past then, and goes. Once there is a descriptor again, nothing is missing."""
    path = tmp_path / "state"
    recorder, engine = overdue(path)
    models = [f"{number:0250}" for number in range(200)]
    sent, peak = 2, 0
    with no_descriptors():
        while recorder.status.writing:
            peak = (path / "journal-2").stat().st_size
            engine.send(recorder, *(span(models, sent, sent + 1) for _ in range(4)))
            sent += 4
            assert peak <= MAX_BYTES, "it has no bound"
        assert recorder.status == JournalStatus(False, NO_DESCRIPTOR)
        assert MAX_TAIL + MAX_OVERDUE <= peak < MAX_TAIL + MAX_OVERDUE + MAX_RECORD
        with contextlib.suppress(FileNotFoundError):
            assert (path / "journal-2").stat().st_size == 0
        warnings = [r.message for r in caplog.records if r.levelname == "WARNING"]
        assert [message.partition(":")[0] for message in warnings] == [
            "no new journal can be begun",
            "the journal cannot be written",
        ]
    recorder.tend()
    assert recorder.status.writing
    killed(recorder)
    assert executions(open_recorder(path, Clock())) == sent
