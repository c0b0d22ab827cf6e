"""Who is connected, and whose events are whose. Pure: no I/O, no clock."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from lilo_engine_hook import wire

from ..faults import described
from .account import StepSums
from .delivery import Tally
from .departed import Departed
from .former import Former
from .ledger import Cuts
from .models import Models, Shared
from .series import SeriesBudget
from .trainer import Trainer

MAX_SERIES: Final = 8192
"""Per-model series: 256 models of 32 phases. 32 clients that use every operation need 600."""
MAX_EARLY: Final = 4096
"""Events of backends that wait for the first engine: its hook may connect a second later."""
MAX_EARLY_BYTES: Final = 4 * 1024 * 1024
"""Packed, as they came."""
MAX_BOOTS: Final = 256
"""Producers remembered. A connected one is never let go; connections are bounded elsewhere."""

_log = logging.getLogger("lilo_sidecar.core")


@dataclass(slots=True)
class Boot:
    """One process's number sequence, as far as it was heard."""

    hello: wire.Hello
    trainer: Trainer | None
    """None for a backend, whose events say by their model whose they are."""
    connections: int = 0
    last_seq: int = 0
    dropped: int = 0
    rejected: int = 0
    unweighed: int = 0


class Producers:
    """Folds the events of several processes into their trainers.

    A trainer is an engine's process with the children it forked; backends only add to what
    their models' trainer has. An engine that appears when another's processes are all gone
    takes its place, and the numbers start afresh; one that appears beside a living one is one
    more trainer.
    """

    def __init__(self, cuts: Cuts) -> None:
        self.shared = Shared(SeriesBudget(MAX_SERIES), Departed(), cuts, Tally(), [], StepSums())
        self.last_heard: float | None = None
        """Unix seconds."""
        self.faults = 0
        """Events that the core failed to apply."""
        self.former = Former()
        """Trainers that were replaced."""
        self._boots: dict[str, Boot] = {}
        self._trainers: dict[str, Trainer] = {}
        """By the boot id of the process that began it, the newest last."""
        self._early: list[wire.Event] = []
        """Of backends, from before there was any engine."""
        self._early_bytes = 0

    @property
    def trainers(self) -> Collection[Trainer]:
        """The newest comes last."""
        return self._trainers.values()

    @property
    def connected(self) -> list[Boot]:
        """The processes that are there now."""
        return [boot for boot in self._boots.values() if boot.connections]

    def connect(self, hello: wire.Hello, now: float) -> list[Trainer]:
        """A producer said hello. Returns the trainers whose place it takes. Raises
        `wire.ProtocolError` (code ``busy``) when MAX_BOOTS are connected."""
        self._tick(now)
        boot = self._boots.get(hello.boot_id)
        if boot is not None:
            boot.connections += 1
            return []
        self._make_room_for_boot()
        trainer: Trainer | None = None
        ended: list[Trainer] = []
        if hello.role == wire.Role.ENGINE:
            root = hello.parent_boot_id or hello.boot_id
            trainer = self._trainers.get(root)
            if trainer is not None and hello.parent_boot_id is None:
                trainer.started = hello.started  # a child of it was heard first
            if trainer is None:
                ended = self._retire_abandoned()
                trainer = Trainer(hello.started, self.shared)
                self._trainers[root] = trainer
                self._catch_up(trainer)
        self._boots[hello.boot_id] = Boot(hello, trainer, connections=1)
        return ended

    def acked(self, boot_id: str) -> int:
        """The number of the last event applied of this boot; 0 before the first."""
        return self._boots[boot_id].last_seq

    def apply(self, boot_id: str, batch: wire.Batch, now: float) -> int:
        """Fold in a batch of a connected boot and return the number to acknowledge. Events
        that were applied before (a batch sent again) are passed over."""
        self._tick(now)
        boot = self._boots[boot_id]
        tally = self.shared.unowned if boot.trainer is None else boot.trainer.delivery
        missed = batch.first_seq - boot.last_seq - 1
        if missed > 0:
            tally.sent += missed
            tally.dropped += missed
            tally.missed += missed
            boot.last_seq += missed
        events = batch.events[max(0, -missed) :]
        boot.last_seq += len(events)
        for event in events:
            self._apply(event, boot.trainer)
        # Afterwards: what was lost while these events came in may be of models that they began.
        self._count_totals(boot, tally, batch)
        return boot.last_seq

    def disconnect(self, boot_id: str, now: float) -> None:
        """A producer's connection ended; it may come back."""
        self._tick(now)
        boot = self._boots.pop(boot_id)
        boot.connections -= 1
        self._boots[boot_id] = boot  # the longest gone are let go first

    def disconnect_all(self, now: float) -> None:
        """The sidecar itself was away, and every connection ended with it."""
        self.shared.departed.tick(now)
        for boot in self._boots.values():
            boot.connections = 0

    def _tick(self, now: float) -> None:
        self.last_heard = now
        self.shared.departed.tick(now)

    # --- events ---------------------------------------------------------------------------

    def _count_totals(self, boot: Boot, tally: Tally, batch: wire.Batch) -> None:
        # Totals only grow; a batch sent again carries older ones.
        dropped = max(0, batch.dropped - boot.dropped)
        rejected = max(0, batch.rejected - boot.rejected)
        unweighed = max(0, batch.unweighed - boot.unweighed)
        boot.dropped += dropped
        boot.rejected += rejected
        boot.unweighed += unweighed
        tally.sent += dropped + rejected
        tally.dropped += dropped
        tally.rejected += rejected
        tally.unweighed += unweighed

    def _apply(self, event: wire.Event, trainer: Trainer | None) -> None:
        """One event that was not seen before; of a backend if it comes without a trainer."""
        if trainer is None:
            trainer = self._trainer_of(event)
        if trainer is not None:
            self._apply_to(trainer, event)
        else:
            self._put_by(event)

    def _put_by(self, event: wire.Event) -> None:
        try:
            size = len(wire.encode_event(event))
        except wire.ProtocolError:  # longer than a hook makes them, and put by for nobody
            size = MAX_EARLY_BYTES + 1
        if len(self._early) < MAX_EARLY and self._early_bytes + size <= MAX_EARLY_BYTES:
            self._early.append(event)  # counted once it is applied
            self._early_bytes += size
        else:
            self.shared.unowned.sent += 1
            self.shared.unowned.dropped += 1

    def _apply_to(self, trainer: Trainer, event: wire.Event) -> None:
        tally = trainer.delivery
        try:
            trainer.apply(event)
        except Exception as error:  # noqa: BLE001 - a fault of ours costs one event, not the rest
            self.faults += 1
            tally.dropped += 1
            kind = type(event).__name__
            _log.error("a fault while applying a %s, which is dropped: %s", kind, described(error))
        else:
            tally.applied += 1
        tally.sent += 1  # with the others: the event may have begun a model's interval

    def _trainer_of(self, event: wire.Event) -> Trainer | None:
        """Whose work a backend's event tells of: several engines may run beside one backend."""
        if isinstance(event, wire.Span):
            model = event.models[0]
            for knows in (Models.accounts_for, Models.forgot):
                for trainer in self.trainers:
                    if knows(trainer.models, model):
                        return trainer
        return next(reversed(self._trainers.values()), None)

    # --- coming and going -----------------------------------------------------------------

    def _catch_up(self, trainer: Trainer) -> None:
        """The first engine is there: what backends reported before belongs to it."""
        early, self._early, self._early_bytes = self._early, [], 0
        for event in early:
            self._apply_to(trainer, event)

    def _retire_abandoned(self) -> list[Trainer]:
        """Let go of every trainer none of whose processes is connected."""
        living = {id(boot.trainer) for boot in self.connected}
        ended = []
        for root, trainer in list(self._trainers.items()):
            if id(trainer) not in living:
                trainer.close()
                self.former.add(trainer)
                ended.append(trainer)
                del self._trainers[root]
                for boot_id in [i for i, boot in self._boots.items() if boot.trainer is trainer]:
                    del self._boots[boot_id]
        if ended and not self._trainers:
            self.former.count(self.shared.unowned.snapshot())
            self.shared = replace(self.shared, unowned=Tally())
        return ended

    def _make_room_for_boot(self) -> None:
        if len(self._boots) < MAX_BOOTS:
            return
        for boot_id, boot in self._boots.items():
            if not boot.connections:
                del self._boots[boot_id]
                return
        raise wire.ProtocolError("busy", f"{MAX_BOOTS} producers are known already")
