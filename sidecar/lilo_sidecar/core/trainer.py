"""One trainer's events folded into series and accounts: the meaning of the numbers.

Pure: no I/O and no clock; every time comes with an event.
"""

from __future__ import annotations

import math
from typing import Final

from lilo_engine_hook import wire

from .account import QueuedSplit, SplitQueued, StepSums
from .activity import Activities
from .delivery import Tally
from .lanes import GPU, Lanes
from .model import REGISTRATION, Command
from .models import Models, Shared
from .reading import Source
from .records import Records
from .series import NO_WAIT, Wait
from .shares import execution_shares
from .spans import phase_of, request_ids_of

MAX_PENDING: Final = 4096
"""Commands submitted and not finished. A client pipelines a handful; 256 models times 16."""
_ACCEPT: Final = "accept"


class Trainer:
    """The figures of one trainer, from its start to its end."""

    def __init__(self, started: float, shared: Shared) -> None:
        self.started = started
        """Unix seconds at which the trainer's process really started."""
        self.gauges: dict[str, float] = {}
        self.delivery = Tally()
        self.records = Records(shared.budget, shared.cuts.latest)
        self.models = Models(self.delivery, self.records, shared)
        self.activity = Activities()
        self._pending: dict[str, Command] = {}
        self._lanes = Lanes()

    # --- events ---------------------------------------------------------------------------

    def apply(self, event: wire.Event) -> None:
        """Fold in one event."""
        match event:
            case wire.Span():
                self._span(event)
            case wire.Begin():
                self._begin(event)
            case wire.Finish():
                self._finish(event)
            case wire.Register():
                self._register(event)
            case wire.Forget():
                self._forget(event)
            case wire.Gauge():
                self._gauge(f"trainer.{event.name}_s", event.t)
            case wire.State():
                self._state(event)
            case wire.Activity():
                self._activity(event)

    def _register(self, event: wire.Register) -> None:
        model = self.models.register(event.model, event.t)
        if model is not None and REGISTRATION not in model.queued:
            model.submit(Command(REGISTRATION, event.model, _ACCEPT, event.t))

    def _forget(self, event: wire.Forget) -> None:
        model = self.models.known.get(event.model)
        if model is not None:
            for command in list(model.commands.values()):
                self._drop(command, event.t)
            model.account.close(event.t, model.regime, _ACCEPT)  # the last interval ends here
            self._lanes.forget(event.model)
            self.settle(event.model, math.inf)  # no more will be heard
        self.models.forget(event.model)

    def _begin(self, event: wire.Begin) -> None:
        if event.request_id in self._pending:
            return  # a retry: the command has waited since its first submission
        model = self.models.used(event.model, event.t)
        if model is None:
            return
        if len(self._pending) >= MAX_PENDING:
            # The oldest: a command that nobody finished must not keep others out for ever.
            self._drop(next(iter(self._pending.values())), event.t)
            self.delivery.pending_evicted += 1
        command = Command(
            event.request_id,
            event.model,
            event.kind,
            event.t,
            seq=event.seq,
            weight=event.weight,
        )
        self._pending[event.request_id] = command
        model.submit(command)
        if model.account.crowded:
            self.settle(event.model)

    def _finish(self, event: wire.Finish) -> None:
        command = self._pending.get(event.request_id)
        if command is not None:
            self._drop(command, event.t)
            if command.started:
                for lost in self.models.known[command.model].overtaken_by(command):
                    self._drop(lost, event.t)

    def _drop(self, command: Command, t: float) -> None:
        del self._pending[command.request_id]
        model = self.models.known[command.model]
        model.finish(command, t)
        self._lanes.finished(command, t)
        if model.account.crowded:
            self.settle(command.model)

    def _span(self, span: wire.Span) -> None:
        models = tuple(dict.fromkeys(span.models))
        request_ids = request_ids_of(span, models)
        waited_for = self._start(span, models, request_ids)
        batch = span.n or len(request_ids) or len(models)
        on_gpu = span.lane == GPU and span.t1 >= span.t0
        shares = execution_shares(span, models, request_ids, self._pending) if on_gpu else {}
        self._record(models, phase_of(span.name), span.t0, span.t1, batch, shares)
        if span.name == _ACCEPT and span.ok is not False:
            self._gauge("trainer.first_model_ready_s", span.t1)
        if on_gpu:
            self._ran(span, shares, waited_for)
            if span.name.startswith("capture:"):
                self._captured(span, request_ids)
            else:
                self._count_batch(shares, batch)
        elif span.name.startswith("persist:"):
            self._lanes.learn(span.name.partition(":")[2], span.lane, self._pending.values())
        self.activity.end(span.lane, span.t1)

    def _start(
        self, span: wire.Span, models: tuple[str, ...], request_ids: tuple[str, ...]
    ) -> dict[str, str]:
        """Record the waits that end with this span; the kind each of its models waited for."""
        commands = []
        if span.name == _ACCEPT:
            for model_id in models:
                model = self.models.known.get(model_id)
                if model is not None and REGISTRATION in model.queued:
                    commands.append(model.queued[REGISTRATION])
        commands += [self._pending[i] for i in request_ids if i in self._pending]
        waited_for: dict[str, str] = {}
        for command in commands:
            if not command.started:
                waited_for.setdefault(command.model, command.kind)
                self._record_wait(command, span)
                self.models.known[command.model].start(command, span.t0)
        return waited_for

    def _ran(self, span: wire.Span, shares: dict[str, float], waited_for: dict[str, str]) -> None:
        self._lanes.gpu.add(span.t0, span.t1)
        # Also those whose commands are in the batch and whose ids the span does not list.
        for model_id in dict.fromkeys((*shares, *waited_for)):
            model = self.models.known.get(model_id)
            if model is not None:
                share = shares.get(model_id, 0.0)
                model.ran(span.t0, span.t1, share, waited_for.get(model_id, ""))
                self.settle(model_id)

    def _count_batch(self, shares: dict[str, float], batch: int) -> None:
        for model_id in shares:
            model = self.models.known.get(model_id)
            if model is not None:
                model.executions += 1
                model.batched += batch

    def _captured(self, span: wire.Span, request_ids: tuple[str, ...]) -> None:
        for request_id in request_ids:
            command = self._pending.get(request_id)
            if command is not None and command.started:
                self.models.known[command.model].capture(command, span.t1)
                self._lanes.captured(command)

    def _state(self, event: wire.State) -> None:
        if self.activity.state(event):
            self._lanes.gpu.idle_at(event.t)

    def _activity(self, event: wire.Activity) -> None:
        self.activity.take_up(event)
        if event.lane != GPU and event.kind is not None:
            self._lanes.learn(event.kind, event.lane, self._pending.values())

    def _gauge(self, name: str, t: float) -> None:
        if t < self.started:
            self.delivery.negative += 1
        else:
            self.gauges.setdefault(name, t - self.started)

    # --- series and accounts --------------------------------------------------------------

    def _record_wait(self, command: Command, span: wire.Span) -> None:
        """Where a command's wait went. Its own model's work is known from running sums, the
        lanes' from their timelines; what the gpu lane does beside another lane's span may not
        have been heard yet."""
        model, since, t0 = self.models.known[command.model], command.submitted, span.t0
        known = t0 if span.lane == GPU else max(since, min(t0, self._lanes.gpu.known_until))
        seen = self._lanes.window(command.model, command.kind, since, known)
        own = min(seen.busy, max(0.0, model.own - command.own_before))
        wait = Wait(
            own + seen.behind_own,
            seen.busy - own + seen.behind_others,
            seen.idle,
            seen.unknown + t0 - known,
        )
        self._record((command.model,), f"{command.kind}.queue_wait", since, t0, 1, wait=wait)

    def settle(self, model_id: str, known_until: float | None = None) -> None:
        """Bring a model's account as far as the lanes are known, or are taken to be."""
        account = self.models.known[model_id].account
        if account.is_settled:
            return
        if known_until is None:
            known_until = self._lanes.gpu.known_until
        account.settle(known_until, self._split_of(model_id, keep=True))

    def foreseen(self, model_id: str) -> tuple[float, StepSums]:
        """Up to when `settle` would bring a model's account, and what it would come to since it
        began; nothing changes."""
        account = self.models.known[model_id].account
        split = self._split_of(model_id, keep=False)
        return account.foreseen(self._lanes.gpu.known_until, split)

    def _split_of(self, model_id: str, *, keep: bool) -> SplitQueued:
        def split(start: float, end: float, kind: str) -> QueuedSplit:
            seen = self._lanes.window(model_id, kind, start, end, keep=keep)
            # Unknown: the lane has run so many spans meanwhile that it forgot their beginning.
            neighbors = seen.busy + seen.behind_others + seen.unknown
            return QueuedSplit(neighbors, seen.idle, seen.behind_own)

        return split

    def _record(
        self,
        models: tuple[str, ...],
        phase: str,
        start: float,
        end: float,
        batch: int,
        shares: dict[str, float] | None = None,
        wait: Wait = NO_WAIT,
    ) -> None:
        """One record: credited to each of its models, and once to the aggregate."""
        seconds = end - start
        if seconds < 0:
            self.delivery.negative += 1
            return
        if not self.records.add(phase, seconds, batch, seconds if shares else 0.0, wait):
            self.delivery.series_refused += 1
        for model_id in models:
            model = self.models.named(model_id, start)
            if model is None:
                continue
            share = seconds * shares[model_id] if shares else 0.0
            if not self.records.add_to(model, phase, seconds, batch, share, wait):
                self.delivery.series_refused += 1

    def source(self, model_id: str) -> Source:
        """The model's figures as of now."""
        self.settle(model_id)
        model = self.models.known[model_id]
        return Source(model.ledger, self.delivery.snapshot(), model.account)

    def close(self) -> None:
        """The trainer is gone, and so are its models."""
        for model_id in self.models.known:
            self.settle(model_id, math.inf)  # no more will be heard
        self.models.close()
