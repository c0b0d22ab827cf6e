"""The core: what producers report, accumulated, and what to answer.

Pure and deterministic: events and questions in, snapshots out; no I/O, no clock, no lock. The
same calls in the same order come to the same answers, to the last digit. ``now`` is Unix seconds
from the caller. One thread.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from lilo_engine_hook import wire

from .activity import lanes_now
from .cursor import Cursor
from .delivery import Delivery
from .departed import DepartedModel
from .ledger import Cuts
from .producers import Producers
from .readers import READERS_OF_ALL, Readers
from .reading import Reading, Source, read
from .timing import (
    AGGREGATE,
    Health,
    IntervalTiming,
    LaneNow,
    PhaseTiming,
    Step,
    Timing,
    shares_of,
    waits_of,
)
from .totals import Totals, totals_of
from .trainer import Trainer

_BEGINNING: Final = 0
"""The number of no mark: every ledger is younger."""


class CriticalPath:
    """Accumulates what several producers report and answers for any model, or all (``*``)."""

    def __init__(self, epoch: str = "0") -> None:
        """``epoch`` (hexadecimal) tells this state's cursors from those of any other state."""
        self._epoch = epoch
        self._cuts = Cuts()
        self._producers = Producers(self._cuts)
        self._readers = Readers(READERS_OF_ALL, Delivery())
        """Of the aggregate."""
        self._replaced_at = -1
        """The latest mark when a trainer was replaced, whose last figures no interval has."""
        self._former_epoch = ""
        self._former_latest = -1
        """The latest mark of that epoch that is known; later ones were put, and given out."""
        self._cut_off_at = -1
        """The mark where a part of the history is lost."""

    # --- producers ------------------------------------------------------------------------

    def connect(self, hello: wire.Hello, now: float) -> list[Timing]:
        """A producer said hello. Returns the lifetime aggregate of each trainer whose place it
        takes. Raises `wire.ProtocolError` (code ``busy``) when there are too many."""
        ended = self._producers.connect(hello, now)
        if ended:
            self._replaced_at = self._cuts.latest
            if len(self._producers.trainers) == 1:
                # What may be anybody's is counted from the first trainer on.
                self._readers.recount(Delivery())
        return [self._lifetime([trainer], now) for trainer in ended]

    def acked(self, boot_id: str) -> int:
        """The number of the last event applied of this boot; 0 before the first."""
        return self._producers.acked(boot_id)

    def apply(self, boot_id: str, batch: wire.Batch, now: float) -> int:
        """Fold in a batch of a connected boot and return the number to acknowledge. Events
        that were applied before (a batch sent again) are passed over."""
        return self._producers.apply(boot_id, batch, now)

    def disconnect(self, boot_id: str, now: float) -> None:
        """A producer's connection ended; it may come back."""
        self._producers.disconnect(boot_id, now)

    def disconnect_all(self, now: float) -> None:
        """The sidecar itself was away, and every connection ended with it."""
        self._producers.disconnect_all(now)

    def cut_off(self, epoch: str) -> None:
        """A part of what this state was made of is lost, and what readers were told with it: its
        cursors are of another epoch from now on, and every reader hears of a hole."""
        self._former_epoch, self._epoch = self._epoch, epoch
        self._former_latest = self._cuts.latest
        self._cut_off_at = self._cuts.next()

    # --- answers --------------------------------------------------------------------------

    def timing(
        self,
        model_id: str | None,
        *,
        reset: bool,
        now: float,
        reader: str | None = None,
        ack: Cursor | None = None,
    ) -> Timing:
        """The figures of one model's interval, or (None, ``*``) of all models together: for one
        reader, or for all those without a name.

        ``reset`` ends the reader's interval. What a named reader was given is given again, with
        what came after it, until ``ack`` says that it was received. A model nobody reported has
        no phases, and its readers are not remembered.
        """
        trainers = self._producers.trainers
        if model_id is None or model_id == AGGREGATE:
            sources = _aggregates(trainers)
            found = self._read(sources, self._readers, reader, ack, reset=reset)
            born = min([source.ledger.born for source in sources], default=self._cuts.latest)
            interval = self._interval(reader, ack, found, born, hole_at=self._replaced_at)
            return self._answer(AGGREGATE, found, None, interval, trainers, now)
        owners = self._owners(model_id)
        sources = [owner.source(model_id) for owner in owners]
        departed = self._departed(model_id, now)
        unowned = None
        # A trainer that only heard a backend name the model does not make it come back.
        final = departed is not None and not any(o.models.accounts_for(model_id) for o in owners)
        if departed is not None and final:
            model, unowned = departed.model, departed.unowned
            sources.append(Source(model.ledger, departed.delivery, model.account))
        elif owners:
            model = owners[-1].models.known[model_id]
            if departed is not None and departed.model.readers is model.readers:
                # It moved: what the trainer that it left had last is its readers', too.
                left = Source(departed.model.ledger, departed.delivery, departed.model.account)
                sources.insert(0, left)
        else:
            found = self._read_lifetime(trainers)._replace(phases={})
            interval = self._interval(reader, ack, found, self._cuts.latest)
            # Whoever acknowledges something had figures of it, which are not here any more.
            interval = replace(interval, complete=interval.complete and ack is None)
            return self._answer(model_id, found, None, interval, trainers, now)
        found = self._read(sources, model.readers, reader, ack, reset=reset, unowned=unowned)
        # A reader that was told of an earlier model of the same id has not heard all of that one.
        born = min(source.ledger.born for source in sources)
        interval = self._interval(reader, ack, found, born, hole_at=born, final=final)
        step = Step.of(found.since, found.until, found.sums)
        return self._answer(model_id, found, step, interval, owners or trainers, now)

    def is_touched(
        self, model_id: str | None, *, reset: bool, ack: Cursor | None, now: float
    ) -> bool:
        """Whether such a question changes this state: an answer of one model settles its account
        first, and that has to happen again at the same moment for the same figures."""
        if model_id is None or model_id == AGGREGATE:
            return reset or ack is not None
        owners = self._owners(model_id)
        if reset or ack is not None:
            return bool(owners) or self._departed(model_id, now) is not None
        return not all(owner.models.known[model_id].account.is_settled for owner in owners)

    def lifetime(self, now: float) -> Timing:
        """The aggregate since the trainer started, whoever read what."""
        return self._lifetime(self._producers.trainers, now)

    def totals(self, *, ahead: bool = False) -> Totals:
        """Everything since the beginning, of all models and of each; changes nothing. See
        `totals_of` for ``ahead``."""
        producers = self._producers
        return totals_of(producers.trainers, producers.former, producers.shared, ahead=ahead)

    def health(self, now: float) -> Health:
        """Whether a trainer is there, and when one was last heard."""
        connected = self._producers.connected
        newest = next(reversed(list(self._producers.trainers)), None)
        return Health(
            connected=any(boot.hello.role == wire.Role.ENGINE for boot in connected),
            last_heard=self._producers.last_heard,
            producers=len(connected),
            lanes=self._lanes_now(self._producers.trainers, AGGREGATE, now),
            faults=self._producers.faults,
            started=None if newest is None else newest.started,
            gauges={} if newest is None else dict(newest.gauges),
        )

    # --- what they are made of ------------------------------------------------------------

    def _owners(self, model_id: str) -> list[Trainer]:
        """The trainers that have something of a model; the one whose engine told of it last."""
        trainers = self._producers.trainers
        owners = [trainer for trainer in trainers if model_id in trainer.models.known]
        return sorted(owners, key=lambda trainer: trainer.models.accounts_for(model_id))

    def _departed(self, model_id: str, now: float) -> DepartedModel | None:
        return self._producers.shared.departed.get(model_id, now)

    def _read(
        self,
        sources: Sequence[Source],
        readers: Readers,
        reader: str | None,
        ack: Cursor | None,
        *,
        reset: bool,
        unowned: Delivery | None = None,
    ) -> Reading:
        acknowledged = ack.number if ack is not None and self._is_mine(ack) else None
        return read(
            sources,
            readers,
            self._cuts,
            reader,
            acknowledged,
            reset=reset,
            unowned=self._producers.shared.unowned.snapshot() if unowned is None else unowned,
        )

    def _read_lifetime(self, trainers: Collection[Trainer]) -> Reading:
        nobody = Readers(1, Delivery())
        return self._read(_aggregates(trainers), nobody, None, None, reset=False)

    def _is_mine(self, cursor: Cursor) -> bool:
        """Whether it is a mark of this state, and not of one that was lost."""
        if cursor.epoch == self._former_epoch:
            return cursor.number <= self._former_latest
        return cursor.epoch == self._epoch and cursor.number <= self._cuts.latest

    def _interval(
        self,
        reader: str | None,
        ack: Cursor | None,
        found: Reading,
        born: int,
        *,
        hole_at: int = -1,
        final: bool = False,
    ) -> IntervalTiming:
        """The figures go back to the mark ``born``; behind the mark ``hole_at`` some are missing
        for those who were given any by then."""
        known = ack is None or self._is_mine(ack)
        missed = _BEGINNING < found.heard_by <= hole_at
        cut_off = found.start <= self._cut_off_at and born < self._cut_off_at
        whole = not missed and not cut_off
        return IntervalTiming(
            reader,
            str(Cursor(self._epoch, found.start)),
            None if found.end is None else str(Cursor(self._epoch, found.end)),
            known and whole and found.held and found.delivery.whole,
            final,
        )

    def _lifetime(self, trainers: Collection[Trainer], now: float) -> Timing:
        found = self._read_lifetime(trainers)
        interval = self._interval(None, None, found, self._cuts.latest)
        return self._answer(AGGREGATE, found, None, interval, trainers, now)

    def _answer(
        self,
        model_id: str,
        found: Reading,
        step: Step | None,
        interval: IntervalTiming,
        trainers: Collection[Trainer],
        now: float,
    ) -> Timing:
        """Of several trainers, gauges and uptime are the last one's."""
        newest = next(reversed(list(trainers)), None)
        return Timing(
            model_id=model_id,
            uptime_s=None if newest is None else max(0.0, now - newest.started),
            phases={name: PhaseTiming.of(series) for name, series in found.phases.items()},
            waits=waits_of(found.phases),
            shares=shares_of(found.phases),
            step=step,
            lanes=self._lanes_now(trainers, model_id, now),
            gauges={} if newest is None else dict(newest.gauges),
            interval=interval,
            delivery=found.delivery,
        )

    def _lanes_now(
        self, trainers: Collection[Trainer], model_id: str, now: float
    ) -> dict[str, LaneNow]:
        """A trainer that is gone does nothing."""
        here = {id(boot.trainer) for boot in self._producers.connected}
        working = [trainer.activity for trainer in trainers if id(trainer) in here]
        return lanes_now(working, model_id, now)


def _aggregates(trainers: Collection[Trainer]) -> list[Source]:
    return [Source(t.records.aggregate, t.delivery.snapshot()) for t in trainers]
