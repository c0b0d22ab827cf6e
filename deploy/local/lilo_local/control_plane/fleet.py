"""The trainers, which model is on which, and where the next one goes."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from lilo_timing import SidecarEndpoint, TimingPoller, least_waiting

from ..web import Problem

MAX_MODELS_PER_TENANT: Final = 8
"""A quarter of a trainer's adapter slots."""


@dataclass(frozen=True, slots=True)
class Trainer:
    """One trainer, and the sidecar in its container. Both take the same bearer token."""

    name: str
    url: str
    sidecar: SidecarEndpoint
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Placement:
    """A model, its tenant and its trainer."""

    model_id: str
    owner: str
    trainer: Trainer


class Fleet:
    """Trainers by name, and the placements of this process's life. One task tree."""

    def __init__(self, trainers: Mapping[str, Trainer], poller: TimingPoller) -> None:
        self.trainers = dict(trainers)
        self.poller = poller
        self._placements: dict[str, Placement] = {}

    def place(self, owner: str) -> Placement:
        """A new model of ``owner``, on the trainer whose clients wait least. Raises `Problem` at
        the tenant's bound."""
        if len(self.models_of(owner)) >= MAX_MODELS_PER_TENANT:
            raise Problem(
                429,
                "too_many_models",
                f"a tenant has at most {MAX_MODELS_PER_TENANT} models at once; unload one",
            )
        placement = Placement(f"{owner}-{secrets.token_hex(4)}", owner, self._choose())
        self._placements[placement.model_id] = placement
        return placement

    def remove(self, model_id: str) -> None:
        """The model is gone."""
        self._placements.pop(model_id, None)

    def find(self, model_id: str) -> Placement | None:
        """Where the model is."""
        return self._placements.get(model_id)

    def owner_of(self, model_id: str) -> str | None:
        """Whose it is; None for a model that is not here."""
        placement = self._placements.get(model_id)
        return None if placement is None else placement.owner

    def models_of(self, owner: str) -> list[str]:
        """The tenant's models."""
        return [p.model_id for p in self._placements.values() if p.owner == owner]

    def models_on(self, trainer: str) -> int:
        """How many models a trainer has."""
        return sum(p.trainer.name == trainer for p in self._placements.values())

    def listing(self) -> list[dict[str, Any]]:
        """For the operator: each trainer with its latest timing, the answer's age and the last
        error."""
        latest = self.poller.latest()
        return [
            {
                "name": name,
                "url": trainer.url,
                "models": self.models_on(name),
                "answer": latest[name].answer,
                "age_s": latest[name].age_s,
                "error": latest[name].error,
                "consecutive_failures": latest[name].consecutive_failures,
            }
            for name, trainer in self.trainers.items()
        ]

    async def engine_for(self, model_id: str) -> SidecarEndpoint:
        """Whose timing answer tells of the model. Raises LookupError for one that is not here."""
        return self._placements[model_id].trainer.sidecar

    def _choose(self) -> Trainer:
        placed = {name: self.models_on(name) for name in self.trainers}
        return self.trainers[least_waiting(self.poller.latest(), placed)]
