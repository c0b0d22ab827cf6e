"""When a lane was busy: a bounded record of its spans that answers "how long, within a window"."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import Final

MAX_SPANS: Final = 65_536
"""Spans remembered: at ten spans a second, the last two hours."""
_MAX_SHIFT: Final = 64
"""How many later spans a span that comes late may have to move. Spans come in order but for
threads racing each other; one that is later than this changes no window any more."""


class LaneTimeline:
    """The busy intervals of one serialized lane, in order and without overlap, with running
    sums. Times in seconds.

    `busy` costs two binary searches. The arrays grow to a quarter more than `capacity` before
    the oldest go in one step, so that adding is constant time on average.
    """

    def __init__(self, capacity: int = MAX_SPANS) -> None:
        self._capacity = capacity
        self._starts = array("d")
        self._ends = array("d")
        self._before = array("d")
        """Busy time before each interval starts."""
        self.known_from = float("-inf")
        """Windows that begin earlier are only partly known."""
        self.known_until = float("-inf")
        """What the lane does later has not been heard."""

    def idle_at(self, t: float) -> None:
        """The lane has nothing to do at ``t``: all it did before has been heard."""
        self.known_until = max(self.known_until, t)

    def add(self, start: float, end: float) -> None:
        """The lane worked from ``start`` to ``end``. What overlaps a span known already (a clock
        was set back) counts once."""
        self.known_until = max(self.known_until, end)
        at = bisect_left(self._ends, end)
        if at == len(self._ends):
            if at and start < self._ends[-1]:
                start = self._ends[-1]
            if start < end:
                self._before.append(self._busy_in_all())
                self._starts.append(start)
                self._ends.append(end)
                self._trim()
        elif len(self._ends) - at <= _MAX_SHIFT and start >= self.known_from:
            self._insert(at, start, end)

    def _insert(self, at: int, start: float, end: float) -> None:
        """A late span: into the gap where it belongs, as far as it fits there."""
        if at:
            start = max(start, self._ends[at - 1])
        end = min(end, self._starts[at])
        if start >= end:
            return
        self._starts.insert(at, start)
        self._ends.insert(at, end)
        self._before.insert(at, self._before[at])
        for later in range(at + 1, len(self._before)):
            self._before[later] += end - start

    def _busy_in_all(self) -> float:
        if not self._ends:
            return 0.0
        return self._before[-1] + (self._ends[-1] - self._starts[-1])

    def _trim(self) -> None:
        if len(self._ends) < self._capacity + self._capacity // 4 + 1:
            return
        excess = len(self._ends) - self._capacity
        self.known_from = self._ends[excess - 1]
        for column in (self._starts, self._ends, self._before):
            del column[:excess]

    def busy(self, start: float, end: float) -> float:
        """Seconds within the window in which the lane worked, as far as it is known."""
        if end <= start:
            return 0.0
        return self._busy_until(end) - self._busy_until(start)

    def _busy_until(self, t: float) -> float:
        at = bisect_right(self._starts, t) - 1
        if at < 0:
            return self._before[0] if self._before else 0.0
        return self._before[at] + min(t, self._ends[at]) - self._starts[at]
