"""Where the models' time went in the last minutes, in intervals: what the totals came to meanwhile.

Pure: the totals come from the caller, who takes them every few seconds. Nothing of it is kept
elsewhere; it begins anew with the sidecar.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from math import inf
from typing import Final, TypeAlias

from .timing import rounded_parts
from .totals import ModelTotals

SAMPLE_INTERVAL: Final = 5.0
"""Seconds between two looks at the totals: about a step, where steps are short."""
KEPT_FOR: Final = 600.0
"""Seconds that are kept."""
MAX_MODELS_SHOWN: Final = 256
"""Models that are kept, those whose accounts moved last: as many as have all their series."""
MAX_INTERVALS: Final = 4096
"""Intervals given at once, of all models: ten minutes of 34 of them, one by one. With more models
several are given as one."""
_PLACES: Final = 6

Interval: TypeAlias = list[float]
"""Unix seconds until when, then the seconds in the order of `StepSums`, which add up to the
interval's length: it begins that much earlier."""
_WIDTH: Final = 8
"""An interval and when it was taken, on the sidecar's clock."""


class _Track:
    """One model's intervals, oldest first, side by side in one array."""

    __slots__ = ("kept", "since", "sums", "until")

    def __init__(self, model: ModelTotals) -> None:
        self.since = model.since
        self.until = model.until
        self.sums: tuple[float, ...] = model.sums.to_tuple()
        self.kept = array("d")

    def continues(self, model: ModelTotals) -> bool:
        """Whether it is the model of before, as it was or further on."""
        return model.since == self.since and model.until >= self.until

    def add(self, model: ModelTotals, since: Sequence[float], start: float, now: float) -> None:
        """What the totals came to since they were ``since``, at ``start``. A part that fell (what
        came late told of another one) is taken back in the intervals to come."""
        sums = model.sums.to_tuple()
        grown = [later - earlier for later, earlier in zip(sums, since, strict=True)]
        parts = _not_below_zero(grown)
        wall = round(model.until, _PLACES) - round(start, _PLACES)
        self.kept.extend((round(model.until, _PLACES), *rounded_parts(wall, parts), now))
        self.until = model.until
        self.sums = tuple(earlier + part for earlier, part in zip(since, parts, strict=True))

    def forget(self, earliest: float) -> None:
        gone = 0
        while gone < len(self.kept) and self.kept[gone] < earliest:
            gone += _WIDTH
        del self.kept[:gone]


def _not_below_zero(parts: Sequence[float]) -> list[float]:
    """Parts with the same sum; what those below zero lack is taken from the largest ones."""
    given = [max(0.0, part) for part in parts]
    lacking = -sum(part for part in parts if part < 0.0)
    while lacking > 0.0 and (most := max(given)) > 0.0:
        at = given.index(most)
        taken = min(lacking, most)
        given[at] -= taken
        lacking -= taken
    return given


class History:
    """The last minutes of the models that were active last."""

    def __init__(self) -> None:
        self._tracks: dict[str, _Track] = {}
        self._sampled = -inf

    def sample(self, models: Sequence[ModelTotals], now: float) -> None:
        """Look at all models' totals, at ``now`` in Unix seconds. One whose account has not moved
        gets no interval. After the clock was set back they begin anew, to be in order."""
        if now < self._sampled:
            self._tracks = {}
        self._sampled = now
        tracks: dict[str, _Track] = {}
        for model in latest(models):
            track = self._tracks.get(model.model_id)
            if track is None or not track.continues(model):
                track = _Track(model)
                if now - model.since < KEPT_FOR and model.until > model.since:
                    track.add(model, (0.0,) * 6, model.since, now)
            elif model.until > track.until:
                track.add(model, track.sums, track.until, now)
            track.forget(now - KEPT_FOR)
            tracks[model.model_id] = track
        self._tracks = tracks

    def together(self) -> int:
        """How many of a model's intervals are to be given as one, for no more than MAX_INTERVALS
        in all."""
        kept = [len(track.kept) // _WIDTH for track in self._tracks.values()]
        at_once = 1
        while sum(-(-count // at_once) for count in kept) > MAX_INTERVALS:
            at_once += 1
        return at_once

    def intervals(
        self, model_id: str, together: int = 1, *, after: float = -inf, until: float = inf
    ) -> list[Interval]:
        """A model's intervals that were taken later than ``after`` and not later than ``until``,
        oldest first, as many as that together in one."""
        track = self._tracks.get(model_id)
        if track is None:
            return []
        taken = track.kept[_WIDTH - 1 :: _WIDTH]
        begin, end = bisect_right(taken, after), bisect_right(taken, until)
        if begin == end:
            return []
        columns = [
            track.kept[begin * _WIDTH + column : end * _WIDTH : _WIDTH].tolist()
            for column in range(_WIDTH - 1)
        ]
        if together > 1:
            columns = [_last(columns[0], together), *(_summed(c, together) for c in columns[1:])]
        return list(map(list, zip(*columns, strict=True)))


def latest(models: Sequence[ModelTotals]) -> list[ModelTotals]:
    """The models whose accounts moved last, no more than are shown, by their ids."""
    shown: Iterable[ModelTotals] = models
    if len(models) > MAX_MODELS_SHOWN:
        shown = heapq.nlargest(MAX_MODELS_SHOWN, models, key=lambda m: (m.until, m.model_id))
    return sorted(shown, key=lambda model: model.model_id)


def _last(column: list[float], together: int) -> list[float]:
    return [column[min(at, len(column)) - 1] for at in _ends(column, together)]


def _summed(column: list[float], together: int) -> list[float]:
    return [round(sum(column[at - together : at]), _PLACES) for at in _ends(column, together)]


def _ends(column: list[float], together: int) -> range:
    return range(together, len(column) + together, together)
