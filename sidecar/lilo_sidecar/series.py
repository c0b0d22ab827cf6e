"""What is kept per phase: counts and sums, never samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias


class Series:
    """One phase of one model. Durations in seconds; ``batch`` sums the commands coalesced."""

    __slots__ = ("batch", "count", "max", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.max = 0.0
        self.batch = 0

    def add(self, seconds: float, batch: int) -> None:
        self.count += 1
        self.total += seconds
        if seconds > self.max:
            self.max = seconds
        self.batch += batch

    def merge(self, other: Series) -> None:
        """Add another's records to these."""
        self.count += other.count
        self.total += other.total
        self.max = max(self.max, other.max)
        self.batch += other.batch


Phases: TypeAlias = dict[str, Series]
"""Series by phase name, such as ``forward_backward.execute``."""


def merged(many: Iterable[Mapping[str, Series]]) -> Phases:
    """The sum of several sets of phases, as new series."""
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
