"""What became of a trainer's events: every one is counted somewhere."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Delivery:
    """What became of the trainer's events since it started, all its models together.

    ``sent = applied + dropped + rejected`` holds whenever nothing is on its way.
    """

    applied: int = 0
    """Events that are in the numbers."""
    dropped: int = 0
    """Events the hook turned away at its bounds, or the sidecar refused."""
    rejected: int = 0
    """Observer calls that made no valid event."""
    unweighed: int = 0
    """Commands whose weight could not be told; they weigh one within their batch."""
    missed: int = 0
    """Events this sidecar never saw and an earlier one may have: a gap in the numbering."""
    negative: int = 0
    """Durations below zero (a clock was set back), which are in no series."""
    series_refused: int = 0
    """Records that found no room for a new series or model."""
    pending_evicted: int = 0
    """Commands forgotten while they waited because too many did; their waits are in no series."""

    def __add__(self, other: Delivery) -> Delivery:
        mine, theirs = asdict(self), asdict(other)
        return Delivery(**{name: mine[name] + theirs[name] for name in mine})


class Tally:
    """The counts of `Delivery` while they grow."""

    __slots__ = tuple(Delivery.__dataclass_fields__)

    def __init__(self) -> None:
        for name in self.__slots__:
            setattr(self, name, 0)

    applied: int
    dropped: int
    rejected: int
    unweighed: int
    missed: int
    negative: int
    series_refused: int
    pending_evicted: int

    def snapshot(self) -> Delivery:
        return Delivery(*(getattr(self, name) for name in self.__slots__))
