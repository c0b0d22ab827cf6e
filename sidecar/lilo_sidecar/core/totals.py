"""Everything since the beginning, whoever read what: for those who watch and take nothing.

Figures that only grow as long as a model is known, and for all models together as long as there
is this state. Nothing here changes the core, and so an account is as far as it was last settled.

No rounding makes a sum fall: Unix times of this century are multiples of 2**-22 seconds as floats,
and so are their differences and sums, exactly, for the first 2**31 seconds of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from .account import StepSums
from .activity import LaneActivity
from .delivery import Delivery
from .former import Former
from .model import Model
from .models import Shared
from .series import Phases, merged
from .trainer import Trainer


class ModelTotals(NamedTuple):
    """One model, since it was first heard of."""

    model_id: str
    since: float
    """Unix seconds of the event that it was first heard of by."""
    until: float
    """Unix seconds up to which its account is settled, or would be."""
    sums: StepSums
    """Where its time went; the parts add up to ``until - since``."""
    queued: int
    """Commands that no lane has taken up; its registration is one while it waits."""
    running: int
    """Commands that one has, and that are not finished. Which ones a batch has is known once its
    span comes, with its end; until then it is one of each model that the lane says it works for.
    """
    executions: int
    """Batches that ran with it in them, captures left out."""
    commands: int
    """Commands in these batches, of all models."""


class Totals(NamedTuple):
    """All models and all trainers, those that were replaced included."""

    models: list[ModelTotals]
    """Those that are known now."""
    steps: StepSums
    """Where the time of all models went, those that are gone included."""
    phases: Phases
    """New series, which grow no more."""
    delivery: Delivery


def totals_of(
    trainers: Iterable[Trainer], former: Former, shared: Shared, *, ahead: bool = False
) -> Totals:
    """Add them up. A model that several trainers name is the one's whose engine told of it.

    ``ahead``: accounts as far as a question of the model would settle them now. Those show what is
    going on; how a wait was split may still change by what comes late, and so a part may fall."""
    here = list(trainers)
    models: dict[str, ModelTotals] = {}
    for trainer in here:
        working: dict[str, list[LaneActivity]] = {}
        for _, lane in trainer.activity:
            for name in lane.models:
                working.setdefault(name, []).append(lane)
        for model_id, model in trainer.models.known.items():
            if model_id not in models or trainer.models.accounts_for(model_id):
                taken_up = sum(_has_one_of(model, lane) for lane in working.get(model_id, ()))
                models[model_id] = _of(trainer, model_id, model, taken_up, ahead=ahead)
    delivery = former.delivery.plus(shared.unowned.snapshot())
    for trainer in here:
        delivery = delivery.plus(trainer.delivery.snapshot())
    lifetimes = [trainer.records.aggregate.lifetime() for trainer in here]
    steps = StepSums(*shared.steps.to_tuple())
    phases = merged([{}, former.phases, *lifetimes])  # of one alone it would be that one
    return Totals(list(models.values()), steps, phases, delivery)


def _has_one_of(model: Model, lane: LaneActivity) -> bool:
    """Whether one of the commands that are queued is in what the lane works on, as it says."""
    return any(
        command.kind == lane.operation and command.submitted <= lane.since
        for command in model.queued.values()
    )


def _of(
    trainer: Trainer, model_id: str, model: Model, taken_up: int, *, ahead: bool
) -> ModelTotals:
    account = model.account
    until, sums = trainer.foreseen(model_id) if ahead else (account.until, account.total())
    return ModelTotals(
        model_id,
        model.ledger.since,
        until,
        sums,
        len(model.queued) - taken_up,
        len(model.started) + taken_up,
        model.executions,
        model.batched,
    )
