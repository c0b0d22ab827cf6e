"""What is in a trace, and what has to hold of every one that Perfetto is to open."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lilo_engine_hook import wire
from lilo_sidecar.options import parse
from lilo_sidecar.options_trace import TraceOptions
from lilo_sidecar.trace.events import WAITING, Tracer
from lilo_sidecar.trace.reports import Report

Entry = dict[str, Any]


def trace_options(*arguments: str | Path) -> TraceOptions:
    """Of a `lilo-sidecar trace`. The command itself lowers the priority of its process, and is not
    for one of tests."""
    given = parse(["trace", *map(str, arguments)])
    assert isinstance(given, TraceOptions)
    return given


class Slice(NamedTuple):
    """Times are Unix microseconds."""

    group: str
    track: str
    """Without the number of its row."""
    name: str
    start: int
    end: int
    args: Entry


class Trace:
    """A trace that is well-formed: made of it, it raises an AssertionError for one that is not."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        groups = _names(entries, "process_name")
        rows = _names(entries, "thread_name")
        threads = [thread for _, thread in rows]
        assert len(set(threads)) == len(threads)
        self.slices: list[Slice] = []
        self.waiting: list[tuple[int, int]] = []
        """When how many commands began to wait."""
        by_row: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        for entry in entries:
            match entry["ph"]:
                case "X":
                    place = entry["pid"], entry["tid"]
                    start, seconds = entry["ts"], entry["dur"]
                    assert isinstance(start, int)
                    assert isinstance(seconds, int)
                    assert seconds >= 0
                    by_row[place].append((start, start + seconds))
                    track = re.sub(r" \([0-9]+\)$", "", rows[place])
                    group = groups[entry["pid"], 0]
                    self.slices.append(
                        Slice(group, track, entry["name"], start, start + seconds, entry["args"])
                    )
                case "C":
                    assert entry["name"] == WAITING
                    self.waiting.append((entry["ts"], entry["args"]["commands"]))
                case other:
                    assert other == "M"
        for row in by_row.values():
            ends = sorted(row)
            for (_, end), (start, _) in itertools.pairwise(ends):
                assert end <= start, "slices of one row overlap"

    def on(self, track: str, group: str = "") -> list[Slice]:
        """The slices of a lane or a model, in their order."""
        found = [each for each in self.slices if each.track == track and group in each.group]
        return sorted(found, key=lambda each: (each.start, each.end))


def _names(entries: Iterable[Entry], kind: str) -> dict[tuple[int, int], str]:
    found = [entry for entry in entries if entry["ph"] == "M" and entry["name"] == kind]
    names = {(entry["pid"], entry["tid"]): entry["args"]["name"] for entry in found}
    assert len(names) == len(found)
    return names


def reported(*events: wire.Event, boot: str = "boot", now: float = 0.0) -> Report:
    """What a process reports at once."""
    return Report(now, boot, None, events, False)


def entries_of(
    *reports: Report, since: float = -1e9, until: float = 0.0, model: str | None = None
) -> list[Entry]:
    """What the reports come to."""
    tracer = Tracer(since, model)
    entries = [entry for report in reports for entry in tracer.report(report)]
    entries += tracer.end(until)
    assert tracer.slices == sum(entry["ph"] == "X" for entry in entries)
    return entries
