"""Where a trainer's records go: to their models, and once to the aggregate of all."""

from __future__ import annotations

from typing import Final

from lilo_engine_hook import wire

from .delivery import Delivery
from .ledger import Ledger, Mark
from .model import Model
from .series import Series, SeriesBudget, Wait

MAX_AGGREGATE: Final = 4 * wire.MAX_NAMES
"""Phases of the aggregate: four for each name a producer may use. Models never crowd it out."""


class Records:
    """The series of one trainer; ``budget`` bounds the per-model ones of all trainers."""

    def __init__(self, budget: SeriesBudget, cut: int) -> None:
        """``cut`` is the number of the latest mark when the trainer was first heard."""
        self.aggregate = Ledger(Mark(cut, 0.0, Delivery()))
        self._budget = budget

    def add(self, phase: str, seconds: float, batch: int, share: float, wait: Wait) -> bool:
        """Credit the aggregate; False if it has no room for one more phase."""
        series = self.aggregate.phases.get(phase)
        if series is None:
            names = self.aggregate.names
            if phase not in names:
                if len(names) >= MAX_AGGREGATE:
                    return False
                names[phase] = len(names)
            series = self.aggregate.phases[phase] = Series()
        series.add(seconds, batch, share, wait)
        return True

    def add_to(
        self, model: Model, phase: str, seconds: float, batch: int, share: float, wait: Wait
    ) -> bool:
        """Credit one model; False if there is no room for one more series."""
        series = model.ledger.phases.get(phase)
        if series is None:
            names = model.ledger.names
            if phase not in names:
                if not self._budget.take():
                    return False
                names[phase] = len(names)
            series = model.ledger.phases[phase] = Series()
        series.add(seconds, batch, share, wait)
        return True

    def release(self, model: Model) -> None:
        """The model is gone: its series count no more."""
        self._budget.give_back(len(model.ledger.names))
