"""What became of a trainer's events: every one is counted somewhere."""

from __future__ import annotations

from operator import add, attrgetter, sub
from typing import Final, NamedTuple


class Delivery(NamedTuple):
    """What became of a trainer's events over an interval, all its models together.

    ``sent = applied + dropped + rejected`` holds whenever nothing is on its way. ``sent`` is
    counted from the producers' numbering and their own totals, the others as things happen.
    """

    sent: int = 0
    """Observer calls that were to become an event."""
    applied: int = 0
    """Events that are in the numbers."""
    dropped: int = 0
    """Events turned away at a bound, refused, or ``missed``."""
    rejected: int = 0
    """Observer calls that made no valid event."""
    unweighed: int = 0
    """Commands whose weight could not be told; they weigh one within their batch."""
    missed: int = 0
    """Of the dropped ones: gaps in the numbering, events that never came to this state."""
    negative: int = 0
    """Durations below zero (a clock was set back), which are in no series."""
    series_refused: int = 0
    """Records that found no room for a new series or model."""
    pending_evicted: int = 0
    """Commands forgotten while they waited because too many did; their waits are in no series."""

    @property
    def whole(self) -> bool:
        """Whether everything that was reported is in the numbers."""
        return not (
            self.dropped
            or self.rejected
            or self.negative
            or self.series_refused
            or self.pending_evicted
        )

    def plus(self, other: Delivery) -> Delivery:
        return Delivery(*map(add, self, other))

    def minus(self, earlier: Delivery) -> Delivery:
        return Delivery(*map(sub, self, earlier))


class Tally:
    """The counts of `Delivery` while they grow."""

    __slots__ = Delivery._fields

    def __init__(self) -> None:
        for name in self.__slots__:
            setattr(self, name, 0)

    sent: int
    applied: int
    dropped: int
    rejected: int
    unweighed: int
    missed: int
    negative: int
    series_refused: int
    pending_evicted: int

    def snapshot(self) -> Delivery:
        return Delivery._make(_COUNTS(self))


_COUNTS: Final = attrgetter(*Delivery._fields)
