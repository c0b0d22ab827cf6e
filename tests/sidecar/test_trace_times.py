"""`lilo-sidecar trace` of journals with times that no clock has."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from lilo_engine_hook import wire
from lilo_sidecar.errors import StartError
from lilo_sidecar.state.journal import Applied, Connected, Disconnected, JournalFile, Record
from lilo_sidecar.trace import export
from support.feed import begin, hello, span
from support.traces import Trace, trace_options

NO_TIMES = [math.nan, math.inf, -math.inf, 1e308, -1e308, 1e12, -9e10]
"""Seconds: not a number, beyond what a float can be rounded to, beyond all years that have a
date."""
GREETING = wire.encode(hello())[4:]


def batch(first: int, *events: wire.Event) -> bytes:
    """As it is in a record."""
    return wire.encode_batch(
        first, 0, 0, wire.join([wire.encode_event(event) for event in events])
    )[4:]


def journal(state: Path, *records: Record) -> None:
    """The state directory of a sidecar that wrote these."""
    state.mkdir()
    file = JournalFile(state / "journal-1")
    for record in records:
        file.append(record)
    file.close()


@pytest.mark.parametrize("now", NO_TIMES)
def test_record_of_no_time_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], now: float
) -> None:
    """Of whichever kind it is, as one that is damaged; what other records say is shown, and dated
    by them."""
    unfinished = wire.State(1005.0, ("m",), "executing:optim_step")
    journal(
        tmp_path / "state",
        Connected(1000.0, GREETING),
        Connected(now, wire.encode(hello("another"))[4:]),
        Applied(1002.0, "boot", batch(1, begin("m", 1, 1000.0), span(["m"], 1001, 1002))),
        Applied(now, "boot", batch(3, span(["m"], 1002, 1003))),
        Applied(1006.0, "boot", batch(4, span(["m"], 1004, 1005), unfinished)),
        Disconnected(now, "boot"),
    )
    state, file = tmp_path / "state", tmp_path / "trace.json"
    assert export(trace_options("--state-dir", state, "-o", file)) == 0
    trace = Trace(json.loads(file.read_text())["traceEvents"])
    lane = [(each.start / 1e6, each.end / 1e6) for each in trace.on("gpu")]
    assert lane == [(1001, 1002), (1004, 1005), (1005, 1006)]
    first, *_, last = capsys.readouterr().err.splitlines()
    assert "4.0 s until 1970-01-01 00:16:46 UTC" in first
    assert last == (
        "lilo-sidecar: 3 records are left out of the journals: damaged, or of a time that no "
        "clock has"
    )


@pytest.mark.parametrize("now", NO_TIMES)
def test_journal_without_any_time_is_refused_in_a_line(tmp_path: Path, now: float) -> None:
    """Nothing of it could be dated; that is not to say that nothing was reported."""
    applied = Applied(now, "boot", batch(1, span(["m"], 1001, 1002)))
    journal(tmp_path / "state", Connected(1000.0, GREETING), applied)
    state, file = tmp_path / "state", tmp_path / "trace.json"
    with pytest.raises(StartError) as refusal:
        export(trace_options("--state-dir", state, "-o", file))
    assert str(refusal.value) == (
        f"nothing in the journals of {state} can be shown; 1 record is left out of the journals: "
        "damaged, or of a time that no clock has"
    )
    assert not file.exists()
