"""A sidecar that goes on from a journal with times that no clock has."""

from __future__ import annotations

import logging
import math
from pathlib import Path

import pytest

from lilo_engine_hook import wire
from lilo_sidecar.core.cursor import Cursor
from lilo_sidecar.state.journal import Applied, Asked, Connected, Disconnected, Record, encode
from lilo_sidecar.web.query import TimingQuery
from support.feed import hello, span
from support.journaled import Clock, begun, killed, open_recorder

NO_TIMES = [math.nan, math.inf, -math.inf, 1e308, 1e11, -1.0]
"""Seconds."""
BATCH = wire.encode_batch(3, 0, 0, wire.join([wire.encode_event(span(["m"], 2, 3))]))[4:]


def records(now: float) -> list[Record]:
    """One of each kind."""
    return [
        Connected(now, wire.encode(hello())[4:]),
        Applied(now, "boot", BATCH),
        Disconnected(now, "boot"),
        Asked(now, "m", True, "loop", None),
    ]


@pytest.mark.parametrize("kind", range(4))
@pytest.mark.parametrize("now", NO_TIMES)
def test_record_of_no_time_ends_the_journal(
    tmp_path: Path, now: float, kind: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Though its checksum is right, it is damage: what comes before it is there, and so is a model
    that was forgotten; the log and every reader hear that the rest is not."""
    path = tmp_path / "state"
    recorder, engine = begun(path)
    engine.send(recorder, wire.Forget(1.0, "m"))
    heard = recorder.health().last_heard
    told = recorder.timing(TimingQuery("m", True, "loop")).interval.cursor
    killed(recorder)
    with (path / "journal-1").open("ab") as file:
        file.write(encode(records(now)[kind]) + encode(Applied(1001.0, "boot", BATCH)))
    with caplog.at_level(logging.WARNING):
        again = open_recorder(path, Clock())
    assert caplog.messages == [
        "the journal is cut off after 4 records: the next one is of a time that no clock has"
    ]
    assert again.health().last_heard == heard
    answer = again.timing(TimingQuery("m", True, "loop", Cursor.parse(str(told))))
    assert not answer.interval.complete
    answer = again.timing(TimingQuery("m", False, "another"))
    assert answer.phases["forward_backward.execute"].count == 1
