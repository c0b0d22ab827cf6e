"""Back-pressure of persistence: when a lane that saves checkpoints or sampler weights was busy
while the gpu lane had nothing to run."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import Final

from .timeline import LaneTimeline

_MAX_SEGMENTS: Final = 1024
"""Segments of a lane remembered: hours of saving."""
_MAX_OWN: Final = 32
"""Segments of one model remembered: a wait reaches back over its own last few."""
MAX_SAVERS: Final = 1024
"""Models whose segments are remembered, those that saved last: 8 MiB of a lane at most."""


class _Segments:
    """Intervals in order, one after the other, with running sums of the gpu lane's idle time in
    them. The last one may be open."""

    __slots__ = ("_capacity", "_ends", "_idle_before", "_starts")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._starts = array("d")
        self._ends = array("d")
        self._idle_before = array("d", [0.0])
        """Idle time before each segment, for as many as the gpu lane's timeline covers."""

    def open(self, t: float) -> None:
        if self._ends:
            t = max(t, self._ends[-1])
        self._starts.append(t)
        self._ends.append(float("inf"))
        if len(self._starts) >= 2 * self._capacity:
            excess = len(self._starts) - self._capacity
            del self._starts[:excess], self._ends[:excess]
            del self._idle_before[: min(excess, len(self._idle_before) - 1)]

    def close(self, t: float) -> None:
        self._ends[-1] = max(t, self._starts[-1])

    def idle(self, start: float, end: float, gpu: LaneTimeline, *, keep: bool) -> float:
        """Seconds within the window in these segments in which ``gpu`` was idle. ``gpu`` must
        be known until ``end``. ``keep``: the sums that this takes are kept for the next time,
        which is a change of the state."""
        before = self._idle_before if keep else self._idle_before[:]
        while (at := len(before) - 1) < len(self._ends) and self._ends[at] <= end:
            before.append(before[at] + _idle(gpu, self._starts[at], self._ends[at]))
        return self._idle_until(end, before, gpu) - self._idle_until(start, before, gpu)

    def _idle_until(self, t: float, before: array[float], gpu: LaneTimeline) -> float:
        at = bisect_right(self._starts, t) - 1
        if at < 0:
            return before[0]
        return before[at] + _idle(gpu, self._starts[at], min(t, self._ends[at]))


def _idle(gpu: LaneTimeline, start: float, end: float) -> float:
    return end - start - gpu.busy(start, end)


class PersistenceLane:
    """One lane that persists what was captured, in the order of capture.

    An operation is on it from the end of its capture to its finish, so that nothing has to
    be told anew when the span of the persisting itself arrives at its end.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, str] = {}
        """Captured and unfinished: model by request id, the one being persisted first."""
        self._all = _Segments(_MAX_SEGMENTS)
        self._own: dict[str, _Segments] = {}

    def enter(self, request_id: str, model: str, t: float) -> None:
        """An operation was captured at ``t``."""
        self._waiting[request_id] = model
        if len(self._waiting) == 1:
            self._all.open(t)
            self._serve(model, t)

    def leave(self, request_id: str, t: float) -> None:
        """It finished, or was given up, at ``t``."""
        head = next(iter(self._waiting), None)
        model = self._waiting.pop(request_id, None)
        if model is None or head != request_id:
            return
        self._own[model].close(t)
        if self._waiting:
            self._serve(next(iter(self._waiting.values())), t)
        else:
            self._all.close(t)

    def _serve(self, model: str, t: float) -> None:
        own = self._own.pop(model, None) or _Segments(_MAX_OWN)
        own.open(t)
        self._own[model] = own  # last: those that have not saved for long go first
        if len(self._own) > MAX_SAVERS:
            del self._own[next(iter(self._own))]

    def forget(self, model: str) -> None:
        """Let go of a model that has nothing on the lane any more."""
        self._own.pop(model, None)

    def split(
        self, model: str, start: float, end: float, gpu: LaneTimeline, *, keep: bool
    ) -> tuple[float, float]:
        """Of the gpu lane's idle time in the window: seconds in which this lane worked for
        ``model``, and for others. Without ``keep`` nothing changes by it."""
        everyone = self._all.idle(start, end, gpu, keep=keep)
        own = self._own.get(model)
        mine = own.idle(start, end, gpu, keep=keep) if own is not None else 0.0
        return mine, max(0.0, everyone - mine)
