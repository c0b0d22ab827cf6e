"""Which models a trainer has, had and lost. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .account import StepSums
from .delivery import Delivery, Tally
from .departed import Departed
from .ledger import Cuts, Mark
from .model import Model
from .readers import READERS_OF_MODEL, Readers
from .records import Records
from .series import SeriesBudget

MAX_MODELS: Final = 8192
"""Models known at once: no more can have a series each."""
MAX_FORGOTTEN: Final = 8192
"""Forgotten ids remembered, so that a span that comes late does not bring its model back."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What all trainers of one sidecar have in common."""

    budget: SeriesBudget
    """Of per-model series."""
    departed: Departed
    cuts: Cuts
    unowned: Tally
    """What became of backends' events of which nobody can tell whose they were."""
    everyone: list[Models]
    """Of each trainer that is there."""
    steps: StepSums
    """Where the time of all models went that there ever were."""


class Models:
    """The models of one trainer, each from when it is first heard of until it is forgotten."""

    def __init__(self, delivery: Tally, records: Records, shared: Shared) -> None:
        self.known: dict[str, Model] = {}
        self._forgotten: dict[str, None] = {}
        self._delivery = delivery
        self._records = records
        self._shared = shared
        shared.everyone.append(self)

    def register(self, model_id: str, t: float) -> Model | None:
        """The trainer has it from ``t`` on; None if there is no room."""
        self._forgotten.pop(model_id, None)
        return self.known.get(model_id) or self._make(model_id, t, registered=True)

    def used(self, model_id: str, t: float) -> Model | None:
        """The trainer has a command of it; None if it was forgotten or there is no room."""
        return self.known.get(model_id) or self._make(model_id, t)

    def named(self, model_id: str, t: float) -> Model | None:
        """It is in a span that began at ``t``. One that comes late brings no model back that had
        gone by now; one that began afterwards is of a new life, of which more is to be heard."""
        model = self.known.get(model_id)
        if model is None and not self._shared.departed.had(model_id, t):
            model = self._make(model_id, t)
        return model

    def accounts_for(self, model_id: str) -> bool:
        """Whether the engine itself told of a model; a backend may name one that is another
        engine's."""
        model = self.known.get(model_id)
        return model is not None and bool(model.own or model.commands or model.queued)

    def forgot(self, model_id: str) -> bool:
        """Whether a model was here and is gone."""
        return model_id in self._forgotten

    def forget(self, model_id: str) -> None:
        """It is gone for good, if it was here at all."""
        if model_id in self.known:
            self.depart(model_id)
        self._forgotten.pop(model_id, None)
        self._forgotten[model_id] = None
        if len(self._forgotten) > MAX_FORGOTTEN:
            del self._forgotten[next(iter(self._forgotten))]

    def depart(self, model_id: str) -> None:
        """It goes as it is, and may be read for a while."""
        model = self.known.pop(model_id)
        self._records.release(model)
        counts, unowned = self._delivery.snapshot(), self._shared.unowned.snapshot()
        self._shared.departed.add(model_id, model, counts, unowned)

    def close(self) -> None:
        """The trainer is gone, and so are its models."""
        for model_id in list(self.known):
            self.depart(model_id)
        self._shared.everyone.remove(self)

    def _make(self, model_id: str, t: float, *, registered: bool = False) -> Model | None:
        if model_id in self._forgotten:
            return None
        if len(self.known) >= MAX_MODELS:
            self._delivery.series_refused += 1
            return None
        # If nobody heard of its registration, anything lost before may have been of it.
        counts = self._delivery.snapshot() if registered else Delivery()
        unowned = self._shared.unowned.snapshot() if registered else Delivery()
        mark = Mark(self._shared.cuts.latest, t, counts)
        readers = self._readers_of(model_id, unowned)
        model = self.known[model_id] = Model(t, mark, readers, self._shared.steps)
        return model

    def _readers_of(self, model_id: str, unowned: Delivery) -> Readers:
        """The readers of a model are the same wherever it is: another trainer may have heard of
        it, and an earlier model may have had the id."""
        for models in self._shared.everyone:
            if models is not self and model_id in models.known:
                return models.known[model_id].readers
        departed = self._shared.departed.take(model_id)
        if departed is None:
            return Readers(READERS_OF_MODEL, unowned)
        departed.model.readers.recount(unowned)
        return departed.model.readers
