"""What is recorded of one model, or of all models, cut into segments where readers stand.

A reader's interval is what lies between a mark and now. Durations cannot be subtracted from a
total (a maximum has no difference), so the ledger keeps segments and adds them up for whoever
asks. Segments between which no reader stands are merged: there are at most as many as there are
marks in use, and one more. The first one goes back to the beginning, for readers to come.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Set as AbstractSet
from typing import NamedTuple, TypeAlias

import msgpack

from .account import StepSums
from .delivery import Delivery
from .series import Phases, Series, Wait, merged


class Cuts:
    """Numbers the marks of all ledgers, in the order in which they are made."""

    def __init__(self) -> None:
        self.latest = 0

    def next(self) -> int:
        self.latest += 1
        return self.latest


class Mark(NamedTuple):
    """A place where a segment ends and the next one begins."""

    number: int
    """Of the cut; see `Cuts`."""
    settled: float
    """How far a model's account was settled, in Unix seconds."""
    delivery: Delivery
    """The trainer's counts by then."""


class Interval(NamedTuple):
    """The figures from a mark on."""

    since: Mark
    phases: Phases
    """To be read, at once: they may be those that grow."""
    sums: StepSums


_Row: TypeAlias = tuple[int, int, float, float, int, float, float, float, float, float]
"""A packed series: its phase's index, then the fields of `Series` and its `Wait`."""


class _Segment(NamedTuple):
    end: Mark
    packed: bytes
    """Rows and account sums; a tenth of what the objects would take."""


class Ledger:
    """The segments of one model, or of one trainer's aggregate. ``phases`` is the open one."""

    __slots__ = ("_origin", "_segments", "names", "phases")

    def __init__(self, origin: Mark) -> None:
        self.phases: Phases = {}
        """Recorded since the last cut."""
        self.names: dict[str, int] = {}
        """Every phase there is in any segment, in the order of their first record."""
        self._origin = origin
        self._segments: list[_Segment] = []

    @property
    def born(self) -> int:
        """The number of the latest mark of all when the ledger was begun."""
        return self._origin.number

    @property
    def since(self) -> float:
        """From when on, in Unix seconds, what it is about is recorded."""
        return self._origin.settled

    def cut(self, end: Mark, sums: StepSums) -> None:
        """End the open segment; ``sums`` are the account's since the last cut."""
        self._segments.append(_Segment(end, self._pack(self.phases, sums)))
        self.phases = {}

    def keep(self, numbers: AbstractSet[int]) -> None:
        """Merge the segments that no mark with one of these numbers separates."""
        kept: list[_Segment] = []
        group: list[_Segment] = []
        for segment in self._segments:
            group.append(segment)
            if segment.end.number in numbers or segment is self._segments[-1]:
                kept.append(self._merge(group))
                group = []
        self._segments = kept

    def interval(self, number: int, open_sums: StepSums) -> Interval:
        """Everything after the mark with that number. Where the mark is not held any more, after
        the next one that is: what lies around it was given out, in part, before."""
        at = self._after(number)
        phases: Phases = {}
        sums = StepSums()
        for segment in self._segments[at:]:
            self._unpack(segment.packed, phases, sums)
        sums.add(open_sums)
        phases = merged((phases, self.phases)) if phases else self.phases
        return Interval(self._segments[at - 1].end if at else self._origin, phases, sums)

    def lifetime(self) -> Phases:
        """Everything since the beginning."""
        return self.interval(self._origin.number, StepSums()).phases

    def holds(self, number: int) -> bool:
        """Whether an interval can begin exactly at that mark, or the ledger is younger."""
        return number <= self._origin.number or any(
            segment.end.number == number for segment in self._segments
        )

    def _after(self, number: int) -> int:
        """The index of the first segment of an interval that begins at that mark."""
        if number <= self._origin.number:
            return 0
        at = bisect_left(self._segments, number, key=lambda segment: segment.end.number)
        return min(at + 1, len(self._segments))

    def _merge(self, group: list[_Segment]) -> _Segment:
        if len(group) == 1:
            return group[0]
        phases: Phases = {}
        sums = StepSums()
        for segment in group:
            self._unpack(segment.packed, phases, sums)
        return _Segment(group[-1].end, self._pack(phases, sums))

    def _pack(self, phases: Phases, sums: StepSums) -> bytes:
        rows = []
        for name, series in phases.items():
            numbers = (series.count, series.total, series.max, series.batch, series.share)
            row = (self.names[name], *numbers, *series.wait)
            rows.append([number or 0 for number in row])  # an integer 0 takes one byte
        packed: bytes = msgpack.packb((rows, sums.to_tuple()))
        return packed

    def _unpack(self, packed: bytes, phases: Phases, sums: StepSums) -> None:
        """Add a packed segment to these."""
        names = list(self.names)
        rows: tuple[_Row, ...]
        rows, account = msgpack.unpackb(packed, use_list=False)
        for index, count, total, longest, batch, share, *wait in rows:
            series = Series()
            series.count, series.total, series.max = count, float(total), float(longest)
            series.batch, series.share = batch, float(share)
            series.wait = Wait(*map(float, wait))
            phases.setdefault(names[index], Series()).merge(series)
        sums.add(StepSums(*account))
