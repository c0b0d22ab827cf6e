"""The tracks of a trace: which slice is on which row, so that no two on one row overlap. Pure.

The format is the Trace Event Format, which Perfetto and chrome://tracing open: a process is a
group of tracks, a thread is a row.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

MAX_ROWS: Final = 64
"""Of one track: more cannot be read, and to find a free one takes time."""
_THREADS: Final = 1000
"""Where their numbers begin: beyond those of processes, or a row is taken for a main thread."""

Entry: TypeAlias = dict[str, Any]
"""Of ``traceEvents``."""


class Track:
    """One lane, or one model: as many rows as it takes. Slices of one command stay on one row,
    which is the command's until it is over."""

    def __init__(self, process: int, first: int, name: str) -> None:
        """``first`` is the number of its first row's thread."""
        self._process = process
        self._first = first
        self._name = name
        self._ends: list[float] = []
        """Where the last slice of each row ends, Unix seconds."""
        self._taken: set[int] = set()

    def take(self, start: float) -> int | None:
        """A row for one command from ``start`` on, to be given back; None where there is none."""
        row = self._free(start)
        if row is not None:
            self._taken.add(row)
        return row

    def give_back(self, row: int, end: float) -> None:
        """The command is over."""
        self._taken.discard(row)
        self._ends[row] = max(self._ends[row], end)

    def place(
        self, name: str, start: float, end: float, args: Entry, row: int | None = None
    ) -> Entry | None:
        """A slice, on ``row`` if there is room; None if there is none anywhere."""
        if row is None or self._ends[row] > start:
            row = self._free(start)
            if row is None:
                return None
        self._ends[row] = end
        begin = microseconds(start)
        return {
            "ph": "X",
            "name": name,
            "pid": self._process,
            "tid": self._first + row,
            "ts": begin,
            "dur": microseconds(end) - begin,
            "args": args,
        }

    def names(self) -> Iterator[Entry]:
        """What the rows are called, and in which order they stand."""
        for row in range(len(self._ends)):
            name = self._name if row == 0 else f"{self._name} ({row + 1})"
            thread = self._first + row
            yield _metadata("thread_name", self._process, thread, name=name)
            yield _metadata("thread_sort_index", self._process, thread, sort_index=thread)

    def _free(self, start: float) -> int | None:
        free = [row for row, end in enumerate(self._ends) if end <= start]
        for row in free:
            if row not in self._taken:
                return row
        if len(self._ends) < MAX_ROWS:
            self._ends.append(start)
            return len(self._ends) - 1
        # Commands whose end was lost must not keep others out.
        return free[0] if free else None


class Group:
    """Tracks that belong together."""

    def __init__(self, process: int, threads: Iterator[int]) -> None:
        """``threads`` gives the number of each track's first row: see `thread_numbers`."""
        self._process = process
        self._threads = threads
        self.tracks: dict[str, Track] = {}
        """By name."""

    def track(self, name: str) -> Track:
        """The track of that name, made if it is missing."""
        track = self.tracks.get(name)
        if track is None:
            track = self.tracks[name] = Track(self._process, next(self._threads), name)
        return track

    def count(self, name: str, t: float, **values: int) -> Entry:
        """What a counter of that name is from ``t`` on."""
        at = {"pid": self._process, "tid": 0, "ts": microseconds(t)}
        return {"ph": "C", "name": name, **at, "args": values}

    def names(self, name: str) -> Iterator[Entry]:
        """What it and its tracks are called."""
        yield _metadata("process_name", self._process, 0, name=name)
        yield _metadata("process_sort_index", self._process, 0, sort_index=self._process)
        for track in self.tracks.values():
            yield from track.names()


def thread_numbers() -> Iterator[int]:
    """For all tracks of one trace: no two rows of it have the same, nor that of a process."""
    return itertools.count(_THREADS, MAX_ROWS)


def microseconds(t: float) -> int:
    """Unix seconds as the format has them. Rounded alike, slices that meet still meet."""
    return round(t * 1e6)


def _metadata(what: str, process: int, thread: int, **args: Any) -> Entry:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": args}
