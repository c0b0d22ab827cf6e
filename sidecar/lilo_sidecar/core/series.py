"""What is kept per phase: counts and sums, never samples."""

from __future__ import annotations

from collections.abc import Sequence
from operator import add
from typing import Final, NamedTuple, TypeAlias


class Wait(NamedTuple):
    """A wait for the gpu lane, by what the trainer did meanwhile; seconds that add up to it."""

    own: float
    """It worked for the model itself."""
    neighbors: float
    """It worked for other models only."""
    overhead: float
    """It was idle."""
    unattributed: float
    """Too long ago to tell."""

    def plus(self, other: Wait) -> Wait:
        return Wait(*map(add, self, other))


NO_WAIT: Final = Wait(0.0, 0.0, 0.0, 0.0)


class Series:
    """One phase of one model. Durations in seconds; ``batch`` sums the commands coalesced."""

    __slots__ = ("batch", "count", "max", "share", "total", "wait")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.max = 0.0
        self.batch = 0
        self.share = 0.0
        """Of an execution or capture: the model's part of the batches' time on the gpu lane."""
        self.wait = NO_WAIT
        """Of a queue wait: where it went."""

    def add(self, seconds: float, batch: int, share: float, wait: Wait) -> None:
        self.count += 1
        self.total += seconds
        if seconds > self.max:
            self.max = seconds
        self.batch += batch
        self.share += share
        if wait is not NO_WAIT:
            self.wait = wait.plus(self.wait)

    def merge(self, other: Series) -> None:
        """Add another's records to these."""
        self.count += other.count
        self.total += other.total
        self.max = max(self.max, other.max)
        self.batch += other.batch
        self.share += other.share
        self.wait = self.wait.plus(other.wait)


Phases: TypeAlias = dict[str, Series]
"""Series by phase name, such as ``forward_backward.execute``."""


def merged(many: Sequence[Phases]) -> Phases:
    """The sum of several sets of phases, as new series; of one, that one."""
    if len(many) == 1:
        return many[0]
    result: Phases = {}
    for phases in many:
        for name, series in phases.items():
            result.setdefault(name, Series()).merge(series)
    return result


class SeriesBudget:
    """The number of per-model series that may exist at once, across all models."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def take(self) -> bool:
        """Reserve one series, if there is one left."""
        if self.used >= self.limit:
            return False
        self.used += 1
        return True

    def give_back(self, count: int) -> None:
        self.used -= count
