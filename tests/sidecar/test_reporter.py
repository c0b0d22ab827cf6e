"""When the `lilo_critical_path` lines are printed, on a virtual clock."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable
from typing import Any

import trio
import trio.testing

from lilo_sidecar.core.critical_path import CriticalPath
from lilo_sidecar.output import LineWriter
from lilo_sidecar.reporter import REPORT_INTERVAL, Reporter
from lilo_sidecar.state.recorder import Recorder
from support.feed import Feed, span


def printed(act: Callable[[CriticalPath, Reporter], Awaitable[None]]) -> list[dict[str, Any]]:
    """The lines that a reporter prints while ``act`` runs beside it."""
    reading, writing = os.pipe()
    lines = LineWriter(writing)

    async def main() -> None:
        core = CriticalPath()
        reporter = Reporter(Recorder(core, None, trio.current_time), lines)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reporter.run)
            await act(core, reporter)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    lines.close(10)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as output:
        return [json.loads(line) for line in output]


def test_one_line_per_interval_without_a_fetch() -> None:
    """Five minutes each, from the start on, once a trainer was heard."""

    async def act(core: CriticalPath, reporter: Reporter) -> None:
        Feed(core)(span(["m"], 0.0, 1.0))
        await trio.sleep(3.5 * REPORT_INTERVAL)

    lines = printed(act)
    assert REPORT_INTERVAL == 300
    assert [line["reason"] for line in lines] == ["interval"] * 3
    assert lines[0]["event"] == "lilo_critical_path"
    assert lines[0]["phases"]["forward_backward.execute"]["count"] == 1


def test_fetch_begins_the_interval_anew() -> None:
    """As long as somebody fetches the aggregate often enough there are no lines."""

    async def act(core: CriticalPath, reporter: Reporter) -> None:
        Feed(core)
        for _ in range(10):
            await trio.sleep(0.9 * REPORT_INTERVAL)
            reporter.aggregate_fetched()
        await trio.sleep(0.9 * REPORT_INTERVAL)

    assert printed(act) == []


def test_nothing_is_printed_before_a_trainer_was_heard() -> None:
    """A sidecar that waits has nothing to report, but its last line says so."""

    async def act(core: CriticalPath, reporter: Reporter) -> None:
        await trio.sleep(3.5 * REPORT_INTERVAL)
        reporter.shutdown()

    (line,) = printed(act)
    assert (line["reason"], line["uptime_s"]) == ("shutdown", None)


def test_lines_tell_what_was_reset_too() -> None:
    """A line is about the trainer's whole life, whoever fetched what in between."""

    async def act(core: CriticalPath, reporter: Reporter) -> None:
        feed = Feed(core)
        feed(span(["m"], 0.0, 1.0))
        core.timing(None, reset=True, now=0.0)
        feed(span(["m"], 1.0, 2.0))
        reporter.trainer_ended(core.lifetime(0.0))

    (line,) = printed(act)
    assert line["reason"] == "trainer_restarted"
    assert line["phases"]["forward_backward.execute"]["count"] == 2
