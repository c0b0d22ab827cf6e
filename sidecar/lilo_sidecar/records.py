"""Where a trainer's records go: to their models, and once to the aggregate of all."""

from __future__ import annotations

from typing import Final

from lilo_engine_hook import wire

from .model import Model
from .series import Phases, Series, SeriesBudget, Wait, merged

MAX_AGGREGATE: Final = 4 * wire.MAX_NAMES
"""Phases of the aggregate: four for each name a producer may use. Models never crowd it out."""


class Records:
    """The series of one trainer; ``budget`` bounds the per-model ones of all trainers."""

    def __init__(self, budget: SeriesBudget) -> None:
        self.aggregate: Phases = {}
        """All models since the aggregate was last reset."""
        self._earlier: Phases = {}
        """All models before that."""
        self._budget = budget

    def add(self, phase: str, seconds: float, batch: int, share: float, wait: Wait) -> bool:
        """Credit the aggregate; False if it has no room for one more phase."""
        series = self.aggregate.get(phase)
        if series is None:
            if len(self.aggregate) >= MAX_AGGREGATE:
                return False
            series = self.aggregate[phase] = Series()
        series.add(seconds, batch, share, wait)
        return True

    def add_to(
        self, model: Model, phase: str, seconds: float, batch: int, share: float, wait: Wait
    ) -> bool:
        """Credit one model; False if there is no room for one more series."""
        series = model.phases.get(phase)
        if series is None:
            if not self._budget.take():
                return False
            series = model.phases[phase] = Series()
        series.add(seconds, batch, share, wait)
        return True

    def clear(self, model: Model) -> None:
        """Drop a model's series: its interval ended, or it is gone."""
        self._budget.give_back(len(model.phases))
        model.phases = {}

    def reset_aggregate(self) -> None:
        """Start the aggregate's next interval; `lifetime` keeps what was."""
        self._earlier = self.lifetime()
        self.aggregate = {}

    def lifetime(self) -> Phases:
        """The aggregate since the trainer started, whatever was reset."""
        return merged((self._earlier, self.aggregate))
