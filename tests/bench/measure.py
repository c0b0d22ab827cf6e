"""The benchmark's framework: interleaved rounds, medians with quartiles, and ratios with a
bootstrap interval, held against what is to be reached."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

_RESAMPLES = 2000
"""Of a bootstrap: its 2.5% are 50 samples then, which is steady to the second digit."""


class Spread(NamedTuple):
    """A median between its quartiles."""

    lower: float
    median: float
    upper: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread:
        if len(samples) == 1:
            return cls(samples[0], samples[0], samples[0])
        lower, median, upper = statistics.quantiles(samples, n=4, method="inclusive")
        return cls(lower, median, upper)


class Ratio(NamedTuple):
    """The median of the rounds' ratios, in its 95% bootstrap interval."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
        """``ours[i]`` and ``theirs[i]`` were measured in one round, next to each other."""
        paired = [a / b for a, b in zip(ours, theirs, strict=True)]
        draw = random.Random(1)  # the same samples always give the same interval
        medians = sorted(
            statistics.median(draw.choices(paired, k=len(paired))) for _ in range(_RESAMPLES)
        )
        edge = _RESAMPLES // 40
        return cls(medians[edge], statistics.median(paired), medians[-edge - 1])


def interleaved(
    rounds: int, contestants: Mapping[str, Callable[[], float]], warm_up: int = 1
) -> dict[str, list[float]]:
    """Measure each contestant once in every round, in turns forwards and backwards, so that what
    else the machine does meets all alike. The first rounds, of caches and imports, do not count."""
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(-warm_up, rounds):
        names = list(contestants)
        for name in names if number % 2 else reversed(names):
            sample = contestants[name]()
            if number >= 0:
                samples[name].append(sample)
    return samples


def percentile(samples: Sequence[float], percent: float) -> float:
    """The smallest sample that so many percent of them do not exceed."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


class Bound(NamedTuple):
    """What a figure is to reach."""

    of: Literal["ratio", "value", "difference"]
    direction: Literal["at most", "at least", "equal within"]
    limit: float
    """In the figure's unit, or of a ratio. ``equal within``: one lies in the ratio's interval,
    and its median is no further from one than this."""

    def is_met_by(self, figure: Figure) -> bool:
        if self.of == "ratio":
            if figure.ratio is None:
                raise ValueError(f"{figure.name} has nothing to be compared with")
            if self.direction == "equal within":
                low, median, high = figure.ratio
                return low <= 1 <= high and abs(median - 1) <= self.limit
            measured = figure.ratio.median
        elif self.of == "value" or figure.theirs is None:
            measured = figure.ours.median
        else:
            measured = figure.ours.median - figure.theirs.median
        return measured <= self.limit if self.direction == "at most" else measured >= self.limit

    def said(self, unit: str) -> str:
        """In words."""
        if self.direction == "equal within":
            return f"1 ± {self.limit:.1%}"
        if self.of == "ratio":
            return f"{self.direction} {self.limit:g}"
        more = " more" if self.of == "difference" else ""
        return f"{self.direction} {self.limit:g} {unit}{more}"


@dataclass(frozen=True)
class Figure:
    """One row of the table."""

    name: str
    unit: str
    ours: Spread
    comparison: str = ""
    """What it is compared with, in words."""
    theirs: Spread | None = None
    ratio: Ratio | None = None
    bounds: tuple[Bound, ...] = ()
    """What it is to reach; empty for a figure that only explains another."""
    note: str = ""

    @property
    def reached(self) -> bool | None:
        """Whether all bounds are met; None if there are none."""
        return all(bound.is_met_by(self) for bound in self.bounds) if self.bounds else None

    def to_json(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "ours": self.ours._asdict(),
            "theirs": None if self.theirs is None else self.theirs._asdict(),
            "ratio": None if self.ratio is None else self.ratio._asdict(),
            "bounds": [bound.said(self.unit) for bound in self.bounds],
            "reached": self.reached,
        }


@dataclass(frozen=True)
class Line:
    """One line of a plot."""

    label: str
    points: list[tuple[float, float]]


@dataclass(frozen=True)
class Curve:
    """How a cost grows: one plot."""

    name: str
    """Of its file, too."""
    title: str
    x: str
    y: str
    lines: list[Line]
    logarithmic: bool = False
    """The y axis."""


@dataclass
class Results:
    """What a group of figures found."""

    figures: list[Figure] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "figures": [figure.to_json() for figure in self.figures],
            "curves": [asdict(curve) for curve in self.curves],
        }


def compared(
    name: str,
    unit: str,
    ours: Sequence[float],
    comparison: str,
    theirs: Sequence[float],
    *bounds: Bound,
    note: str = "",
) -> Figure:
    """A figure from paired samples."""
    ratio = Ratio.of(ours, theirs)
    return Figure(
        name, unit, Spread.of(ours), comparison, Spread.of(theirs), ratio, bounds, note=note
    )
