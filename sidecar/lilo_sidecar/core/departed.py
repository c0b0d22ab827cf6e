"""Models that are gone, whose last interval may still be asked for."""

from __future__ import annotations

from typing import Final, NamedTuple

from .delivery import Delivery
from .model import Model

MAX_DEPARTED: Final = 64
"""Models kept, those that went last."""
KEPT_FOR: Final = 600.0
"""Seconds that they are kept."""


class DepartedModel(NamedTuple):
    """A model as it was when it went."""

    model: Model
    delivery: Delivery
    """Its trainer's counts by then."""
    unowned: Delivery
    """The counts by then of events that may have been for any model."""
    went: float
    """Unix seconds, on the sidecar's clock."""

    def is_kept(self, now: float) -> bool:
        """Whether it may still be read. A clock that was set back keeps it no longer than one
        that was not."""
        return abs(now - self.went) <= KEPT_FOR


class Departed:
    """The departed models of all trainers. They hold no series of the budget."""

    def __init__(self) -> None:
        self._models: dict[str, DepartedModel] = {}
        """By model id, the one that went first comes first."""
        self._now = 0.0

    def tick(self, now: float) -> None:
        """It is ``now``: let go of those that were kept for long enough."""
        self._now = now
        for model_id, departed in list(self._models.items()):
            if departed.is_kept(now):
                return
            del self._models[model_id]

    def add(self, model_id: str, model: Model, delivery: Delivery, unowned: Delivery) -> None:
        """The model goes now."""
        self.take(model_id)
        self._models[model_id] = DepartedModel(model, delivery, unowned, self._now)
        if len(self._models) > MAX_DEPARTED:
            del self._models[next(iter(self._models))]

    def get(self, model_id: str, now: float) -> DepartedModel | None:
        """The model as it was, if it is kept at that time."""
        found = self._models.get(model_id)
        return found if found is not None and found.is_kept(now) else None

    def had(self, model_id: str, t: float) -> bool:
        """Whether something of that time would be of the model that is kept here."""
        departed = self._models.get(model_id)
        return departed is not None and t <= departed.went

    def take(self, model_id: str) -> DepartedModel | None:
        """The model as it was, if it is kept; no longer from now on."""
        return self._models.pop(model_id, None)
