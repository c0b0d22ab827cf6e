"""One trainer's events folded into series: the meaning of the numbers.

Pure: no I/O and no clock; every time comes with an event.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from lilo_engine_hook import wire

from .delivery import Tally
from .series import Phases, Series, SeriesBudget, merged

MAX_PENDING: Final = 4096
"""Commands submitted and not finished. A client pipelines a handful; 256 models times 16."""
MAX_MODELS: Final = 8192
"""Models known at once: no more can have a series each."""
MAX_FORGOTTEN: Final = 8192
"""Forgotten ids remembered, so that a span that comes late does not bring its model back."""
MAX_AGGREGATE: Final = 1024
"""Phases of the aggregate: four for each name a producer may use (``wire.MAX_NAMES``)."""

_ACCEPT: Final = "accept"


class Command:
    """A submitted command: when, of which model and kind, and whether a lane took it up."""

    __slots__ = ("kind", "model", "started", "submitted")

    def __init__(self, model: str, kind: str, submitted: float) -> None:
        self.model = model
        self.kind = kind
        self.submitted = submitted
        self.started = False


class Model:
    """What is held for one model; all of it goes when the model is forgotten."""

    __slots__ = ("commands", "phases", "registered")

    def __init__(self) -> None:
        self.registered: float | None = None
        """When it was asked for, until its first ``accept`` span took that up."""
        self.commands: set[str] = set()
        """Request ids of its pending commands."""
        self.phases: Phases = {}


class Trainer:
    """The figures of one trainer, from its start to its end.

    ``budget`` bounds the per-model series of all trainers together; the aggregate has a bound
    of its own, so that many models never crowd it out.
    """

    def __init__(self, started: float, budget: SeriesBudget) -> None:
        self.started = started
        """Unix seconds at which the trainer's process really started."""
        self.gauges: dict[str, float] = {}
        self.delivery = Tally()
        self.models: dict[str, Model] = {}
        self.aggregate: Phases = {}
        """All models since the aggregate was last reset."""
        self._earlier: Phases = {}
        """All models before that."""
        self._budget = budget
        self._pending: dict[str, Command] = {}
        self._forgotten: dict[str, None] = {}

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
                self._forget(event.model)
            case wire.Gauge():
                self._gauge(f"trainer.{event.name}_s", event.t)
            case wire.State() | wire.Activity():
                pass  # what runs now; no series comes of it

    def _register(self, event: wire.Register) -> None:
        self._forgotten.pop(event.model, None)
        model = self._model(event.model)
        if model is not None and model.registered is None:
            model.registered = event.t

    def _forget(self, model_id: str) -> None:
        model = self.models.pop(model_id, None)
        if model is not None:
            self._budget.give_back(len(model.phases))
            for request_id in model.commands:
                del self._pending[request_id]
        self._forgotten.pop(model_id, None)
        self._forgotten[model_id] = None
        if len(self._forgotten) > MAX_FORGOTTEN:
            del self._forgotten[next(iter(self._forgotten))]

    def _begin(self, event: wire.Begin) -> None:
        if event.request_id in self._pending:
            return  # a retry: the command has waited since its first submission
        model = self._model(event.model)
        if model is None:
            return
        if len(self._pending) >= MAX_PENDING:
            # The oldest: a command that nobody finished must not keep others out for ever.
            self._drop_command(next(iter(self._pending)))
            self.delivery.pending_evicted += 1
        self._pending[event.request_id] = Command(event.model, event.kind, event.t)
        model.commands.add(event.request_id)

    def _finish(self, event: wire.Finish) -> None:
        if event.request_id in self._pending:
            self._drop_command(event.request_id)

    def _drop_command(self, request_id: str) -> None:
        command = self._pending.pop(request_id)
        self.models[command.model].commands.discard(request_id)

    def _span(self, span: wire.Span) -> None:
        models = tuple(dict.fromkeys(span.models))
        request_ids = _request_ids(span, models)
        for request_id in request_ids:
            command = self._pending.get(request_id)
            if command is not None and not command.started:
                command.started = True
                wait = span.t0 - command.submitted
                self._record((command.model,), f"{command.kind}.queue_wait", wait, 1)
        if span.name == _ACCEPT:
            self._accepted(span, models)
        batch = span.n or len(request_ids) or len(models)
        self._record(models, phase_of(span.name), span.t1 - span.t0, batch)

    def _accepted(self, span: wire.Span, models: tuple[str, ...]) -> None:
        for model_id in models:
            model = self.models.get(model_id)
            if model is not None and model.registered is not None:
                wait = span.t0 - model.registered
                model.registered = None
                self._record((model_id,), f"{_ACCEPT}.queue_wait", wait, 1)
        if span.ok is not False:
            self._gauge("trainer.first_model_ready_s", span.t1)

    def _gauge(self, name: str, t: float) -> None:
        if t < self.started:
            self.delivery.negative += 1
        else:
            self.gauges.setdefault(name, t - self.started)

    # --- series ---------------------------------------------------------------------------

    def _model(self, model_id: str) -> Model | None:
        """The model, made known if need be; None if it was forgotten or there is no room."""
        model = self.models.get(model_id)
        if model is None:
            if model_id in self._forgotten:
                return None
            if len(self.models) >= MAX_MODELS:
                self.delivery.series_refused += 1
                return None
            model = self.models[model_id] = Model()
        return model

    def _record(self, models: tuple[str, ...], phase: str, seconds: float, batch: int) -> None:
        """One record: credited to each of its models, and once to the aggregate."""
        if seconds < 0:
            self.delivery.negative += 1
            return
        series = self.aggregate.get(phase)
        if series is None and len(self.aggregate) < MAX_AGGREGATE:
            series = self.aggregate[phase] = Series()
        if series is None:
            self.delivery.series_refused += 1
        else:
            series.add(seconds, batch)
        for model_id in models:
            model = self._model(model_id)
            if model is None:
                continue
            series = model.phases.get(phase)
            if series is None:
                if not self._budget.take():
                    self.delivery.series_refused += 1
                    continue
                series = model.phases[phase] = Series()
            series.add(seconds, batch)

    def reset_model(self, model_id: str) -> None:
        """Start the model's next interval."""
        model = self.models[model_id]
        self._budget.give_back(len(model.phases))
        model.phases = {}

    def reset_aggregate(self) -> None:
        """Start the aggregate's next interval; `lifetime` keeps what was."""
        self._earlier = self.lifetime()
        self.aggregate = {}

    def lifetime(self) -> Phases:
        """The aggregate since the trainer started, whatever was reset."""
        return merged((self._earlier, self.aggregate))

    def close(self) -> None:
        """The trainer is gone: give back what its models used of the budget."""
        self._budget.give_back(sum(len(model.phases) for model in self.models.values()))
        self.models = {}


@lru_cache(maxsize=4 * wire.MAX_NAMES)
def phase_of(name: str) -> str:
    """The phase of a span name: ``capture:K`` is ``K.capture``, ``persist:K`` is
    ``K.persist``, anything else is an execution."""
    for prefix in ("capture", "persist"):
        if name.startswith(prefix + ":"):
            return f"{name[len(prefix) + 1 :]}.{prefix}"
    return f"{name}.execute"


def _request_ids(span: wire.Span, models: tuple[str, ...]) -> tuple[str, ...]:
    if span.request_ids is not None:
        return span.request_ids
    if span.seq_ids is not None and len(models) == 1:
        # Sequence numbers are per model; beside several models nobody knows whose they are.
        return tuple(f"{models[0]}:{seq}" for seq in span.seq_ids)
    return ()
