"""The core: who is connected, whose events are whose, and what to answer.

Pure and deterministic: events in, snapshots out; no I/O, no clock, no lock. ``now`` is Unix
seconds from the caller. One thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from lilo_engine_hook import wire

from .delivery import Tally
from .series import Phases, SeriesBudget, merged
from .timing import AGGREGATE, Health, LaneNow, PhaseTiming, Step, Timing, shares_of, waits_of
from .trainer import Trainer

MAX_SERIES: Final = 8192
"""Per-model series: 256 models of 32 phases. 32 clients that use every operation need 600."""
MAX_EARLY: Final = 4096
"""Events of backends that wait for the first engine: its hook may connect a second later."""
MAX_BOOTS: Final = 256
"""Producers remembered. A connected one is never let go; connections are bounded elsewhere."""


@dataclass(slots=True)
class _Boot:
    """One process's number sequence, as far as it was heard."""

    hello: wire.Hello
    trainer: Trainer | None
    """None for a backend, whose events say by their model whose they are."""
    connections: int = 0
    last_seq: int = 0
    dropped: int = 0
    rejected: int = 0
    unweighed: int = 0


class CriticalPath:
    """Accumulates what several producers report and answers for any model, or all (``*``).

    A trainer is an engine's process with the children it forked; backends only add to what
    their models' trainer has. An engine that appears when another's processes are all gone
    takes its place, and the numbers start afresh; one that appears beside a living one is one
    more trainer.
    """

    def __init__(self) -> None:
        self._budget = SeriesBudget(MAX_SERIES)
        self._boots: dict[str, _Boot] = {}
        self._trainers: dict[str, Trainer] = {}
        """By the boot id of the process that began it, the newest last."""
        self._backends = Tally()
        self._early: list[wire.Event] = []
        """Of backends, from before there was any engine."""
        self._last_heard: float | None = None

    # --- producers ------------------------------------------------------------------------

    def connect(self, hello: wire.Hello, now: float) -> list[Timing]:
        """A producer said hello. Returns the lifetime aggregate of each trainer whose place it
        takes. Raises `wire.ProtocolError` (code ``busy``) when MAX_BOOTS are connected."""
        self._last_heard = now
        boot = self._boots.get(hello.boot_id)
        if boot is not None:
            boot.connections += 1
            return []
        self._make_room_for_boot()
        trainer: Trainer | None = None
        ended: list[Timing] = []
        if hello.role == wire.Role.ENGINE:
            root = hello.parent_boot_id or hello.boot_id
            trainer = self._trainers.get(root)
            if trainer is not None and hello.parent_boot_id is None:
                trainer.started = hello.started  # a child of it was heard first
            if trainer is None:
                ended = self._retire_abandoned(now)
                trainer = self._trainers[root] = Trainer(hello.started, self._budget)
                self._catch_up(trainer)
        self._boots[hello.boot_id] = _Boot(hello, trainer, connections=1)
        return ended

    def acked(self, boot_id: str) -> int:
        """The number of the last event applied of this boot; 0 before the first."""
        return self._boots[boot_id].last_seq

    def apply(self, boot_id: str, batch: wire.Batch, now: float) -> int:
        """Fold in a batch of a connected boot and return the number to acknowledge. Events
        that were applied before (a batch sent again) are passed over."""
        boot = self._boots[boot_id]
        delivery = self._backends if boot.trainer is None else boot.trainer.delivery
        self._last_heard = now
        # Totals only grow; a batch sent again carries older ones.
        delivery.dropped += max(0, batch.dropped - boot.dropped)
        delivery.rejected += max(0, batch.rejected - boot.rejected)
        delivery.unweighed += max(0, batch.unweighed - boot.unweighed)
        boot.dropped = max(boot.dropped, batch.dropped)
        boot.rejected = max(boot.rejected, batch.rejected)
        boot.unweighed = max(boot.unweighed, batch.unweighed)
        expected = boot.last_seq + 1
        if batch.first_seq > expected:
            delivery.missed += batch.first_seq - expected
            boot.last_seq = batch.first_seq - 1
        for event in batch.events[max(0, expected - batch.first_seq) :]:
            trainer = boot.trainer or self._trainer_of(event)
            boot.last_seq += 1
            if trainer is not None:
                trainer.apply(event)
                delivery.applied += 1
            elif len(self._early) < MAX_EARLY:
                self._early.append(event)
            else:
                delivery.dropped += 1
        return boot.last_seq

    def disconnect(self, boot_id: str, now: float) -> None:
        """A producer's connection ended; it may come back."""
        self._last_heard = now
        boot = self._boots.pop(boot_id)
        boot.connections -= 1
        self._boots[boot_id] = boot  # the longest gone are let go first

    def _catch_up(self, trainer: Trainer) -> None:
        """The first engine is there: what backends reported before belongs to it."""
        for event in self._early:
            trainer.apply(event)
        self._backends.applied += len(self._early)
        self._early.clear()

    def _retire_abandoned(self, now: float) -> list[Timing]:
        """Let go of every trainer none of whose processes is connected; their last aggregates."""
        living = {id(boot.trainer) for boot in self._boots.values() if boot.connections}
        ended = []
        for root, trainer in list(self._trainers.items()):
            if id(trainer) not in living:
                ended.append(self._answer(AGGREGATE, trainer.records.lifetime(), [trainer], now))
                trainer.close()
                del self._trainers[root]
                for boot_id in [i for i, boot in self._boots.items() if boot.trainer is trainer]:
                    del self._boots[boot_id]
        return ended

    def _trainer_of(self, event: wire.Event) -> Trainer | None:
        """Whose work a backend's event tells of: several engines may run beside one backend."""
        if isinstance(event, wire.Span):
            model = event.models[0]
            trainers = self._trainers.values()
            for knows in (Trainer.accounts_for, Trainer.forgot):
                for trainer in trainers:
                    if knows(trainer, model):
                        return trainer
        return next(reversed(self._trainers.values()), None)

    def _make_room_for_boot(self) -> None:
        if len(self._boots) < MAX_BOOTS:
            return
        for boot_id, boot in self._boots.items():
            if not boot.connections:
                del self._boots[boot_id]
                return
        raise wire.ProtocolError("busy", f"{MAX_BOOTS} producers are known already")

    # --- answers --------------------------------------------------------------------------

    def timing(self, model_id: str | None, *, reset: bool, now: float) -> Timing:
        """The figures of one model's interval, or (None, ``*``) of all models together.
        ``reset`` ends the interval. A model nobody reported has no phases."""
        trainers = list(self._trainers.values())
        if model_id is None or model_id == AGGREGATE:
            answer = self._answer(
                AGGREGATE, merged(trainer.records.aggregate for trainer in trainers), trainers, now
            )
            if reset:
                for trainer in trainers:
                    trainer.records.reset_aggregate()
            return answer
        owners = [trainer for trainer in trainers if model_id in trainer.models]
        owners.sort(key=lambda trainer: trainer.accounts_for(model_id))
        for trainer in owners:
            trainer.settle(model_id)
        phases = merged(trainer.models[model_id].phases for trainer in owners)
        answer = self._answer(model_id, phases, owners or trainers, now)
        if reset:
            for trainer in owners:
                trainer.reset_model(model_id)
        return answer

    def lifetime(self, now: float) -> Timing:
        """The aggregate since the trainer started, whatever was reset."""
        trainers = list(self._trainers.values())
        phases = merged(trainer.records.lifetime() for trainer in trainers)
        return self._answer(AGGREGATE, phases, trainers, now)

    def health(self, now: float) -> Health:
        """Whether a trainer is there, and when one was last heard."""
        connected = [boot for boot in self._boots.values() if boot.connections]
        return Health(
            connected=any(boot.hello.role == wire.Role.ENGINE for boot in connected),
            last_heard=self._last_heard,
            producers=len(connected),
            lanes=self._lanes_now(self._trainers.values(), AGGREGATE, now),
        )

    def _answer(
        self, model_id: str, phases: Phases, trainers: Iterable[Trainer], now: float
    ) -> Timing:
        """Of several trainers, gauges, uptime and step are the last one's."""
        trainers = list(trainers)
        newest = trainers[-1] if trainers else None
        model = None if newest is None else newest.models.get(model_id)
        return Timing(
            model_id=model_id,
            uptime_s=None if newest is None else max(0.0, now - newest.started),
            phases={name: PhaseTiming.of(series) for name, series in phases.items()},
            waits=waits_of(phases),
            shares=shares_of(phases),
            step=None if model is None else Step.of(model.account),
            lanes=self._lanes_now(trainers, model_id, now),
            gauges={} if newest is None else dict(newest.gauges),
            delivery=sum((t.delivery.snapshot() for t in trainers), self._backends.snapshot()),
        )

    def _lanes_now(
        self, trainers: Iterable[Trainer], model_id: str, now: float
    ) -> dict[str, LaneNow]:
        """Of several trainers' lanes of one name, the one that is longest in its operation. A
        trainer that is gone does nothing."""
        here = {id(boot.trainer) for boot in self._boots.values() if boot.connections}
        lanes: dict[str, LaneNow] = {}
        for trainer in trainers:
            if id(trainer) not in here:
                continue
            for name, activity in trainer.activity.items():
                lane = LaneNow(
                    activity.operation,
                    max(0.0, now - activity.since),
                    model_id == AGGREGATE or model_id in activity.models,
                )
                if name not in lanes or lane.for_s > lanes[name].for_s:
                    lanes[name] = lane
        return lanes
