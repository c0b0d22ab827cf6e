"""What producers reported, as a trace: one track for each lane, one for each model. Pure.

In the form for one model's client there is nothing of other models but the time that the lanes
worked for them, under the name NEIGHBOR.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from lilo_engine_hook import wire

from ..core.model import REGISTRATION
from ..core.spans import phase_of, request_ids_of
from .processes import (
    Change,
    TracedCommand,
    TracedProcess,
    TracedProcesses,
    TracedTrainer,
)
from .reports import Report
from .tracks import Entry, Group

NEIGHBOR: Final = "neighbor"
WAITING: Final = "waiting"
_ACCEPT: Final = "accept"


class Tracer:
    """Makes the entries of a trace from reports in their order.

    It holds what is unfinished, and a pair of numbers for each command.
    """

    def __init__(self, since: float, model_id: str | None = None) -> None:
        """What ended before ``since`` (Unix seconds) is left out. With a ``model_id`` it is the
        form for that model's client."""
        self.slices = 0
        """Made so far."""
        self.left_out = 0
        """Slices for which their track had no row, or that ended before they began."""
        self._since = since
        self._model_id = model_id
        self._processes = TracedProcesses()

    @property
    def models(self) -> int:
        """How many have a track."""
        return len({name for each in self._processes.trainers for name in each.models.tracks})

    def report(self, report: Report) -> Iterator[Entry]:
        """What a report comes to."""
        process = self._processes.get(report.boot_id, report.hello)
        process.gone = report.now if report.gone else None
        for event in report.events:
            match event:
                case wire.Span():
                    yield from self._span(process, event)
                case wire.Begin():
                    kind = event.kind
                    self._begin(process.trainer, event.model, event.request_id, kind, event.t)
                case wire.Register():
                    self._begin(process.trainer, event.model, REGISTRATION, _ACCEPT, event.t)
                case wire.Finish():
                    command = process.trainer.pending.get(event.model, {}).get(event.request_id)
                    if command is not None:
                        yield from self._finish(process.trainer, event.model, command, event.t)
                case wire.Forget():
                    for command in list(process.trainer.pending.get(event.model, {}).values()):
                        yield from self._finish(process.trainer, event.model, command, event.t)
                    process.trainer.pending.pop(event.model, None)
                case wire.State():
                    process.working.state(event)
                case wire.Activity():
                    process.working.take_up(event)

    def end(self, until: float) -> Iterator[Entry]:
        """What is unfinished, as far as it is known, and what all is called. ``until`` is when
        the last was heard; what is of processes that are gone ends with them."""
        for process in self._processes.all:
            end = until if process.gone is None else process.gone
            for lane, work in process.working:
                name, args = self._work(work.operation, work.models, {"unfinished": True})
                yield from self._slice(process.lanes, lane, name, work.since, end, args)
        for trainer in self._processes.trainers:
            end = self._processes.end_of(trainer, until)
            for model, commands in trainer.pending.items():
                for command in commands.values():
                    if not command.started:
                        yield from self._wait(trainer, model, command, end, unfinished=True)
            yield from self._waiting(trainer)
        yield from self._processes.names()

    # --- commands -------------------------------------------------------------------------

    def _begin(
        self, trainer: TracedTrainer, model: str, request_id: str, kind: str, t: float
    ) -> None:
        if self._is_hidden(model):
            return
        commands = trainer.pending.setdefault(model, {})
        if request_id in commands:
            return  # a retry: the command has waited since its first submission
        row = trainer.models.track(model).take(t)
        commands[request_id] = TracedCommand(request_id, kind, t, row)
        trainer.changes.append(Change(t, 1))

    def _finish(
        self, trainer: TracedTrainer, model: str, command: TracedCommand, t: float
    ) -> Iterator[Entry]:
        del trainer.pending[model][command.request_id]
        if not command.started:
            yield from self._waited(trainer, model, command, t, given_up=True)
        if command.row is not None:
            trainer.models.track(model).give_back(command.row, t)

    def _waited(
        self, trainer: TracedTrainer, model: str, command: TracedCommand, end: float, **about: bool
    ) -> Iterator[Entry]:
        """The command waited until then."""
        command.started = True
        trainer.changes.append(Change(max(end, command.submitted), -1))
        yield from self._wait(trainer, model, command, end, **about)

    def _wait(
        self, trainer: TracedTrainer, model: str, command: TracedCommand, end: float, **about: bool
    ) -> Iterator[Entry]:
        name, args = f"{command.kind}.queue_wait", {**_request(command), **about}
        group, start = trainer.models, command.submitted
        yield from self._slice(group, model, name, start, end, args, command.row)

    # --- work -----------------------------------------------------------------------------

    def _span(self, process: TracedProcess, span: wire.Span) -> Iterator[Entry]:
        process.working.end(span.lane, span.t1)
        models = tuple(dict.fromkeys(span.models))
        request_ids = request_ids_of(span, models)
        about: Entry = {"batch": span.n or len(request_ids) or len(models)}
        if span.ok is not None:
            about["ok"] = span.ok
        name, args = self._work(span.name, models, about)
        yield from self._slice(process.lanes, span.lane, name, span.t0, span.t1, args)
        if span.name.startswith("device:"):
            return  # it is a part of what the engine's own span tells
        for model in models:
            if not self._is_hidden(model):
                yield from self._run(process.trainer, model, span, request_ids, about)

    def _run(
        self,
        trainer: TracedTrainer,
        model: str,
        span: wire.Span,
        request_ids: Sequence[str],
        about: Entry,
    ) -> Iterator[Entry]:
        """What a span is to one of its models: the end of waits, and work on its commands."""
        group, phase = trainer.models, phase_of(span.name)
        pending = trainer.pending.get(model, {})
        wanted = [REGISTRATION] if span.name == _ACCEPT else request_ids
        commands = [pending[request_id] for request_id in wanted if request_id in pending]
        for command in commands:
            if not command.started:
                yield from self._waited(trainer, model, command, span.t0)
            args = {**_request(command), **about}
            yield from self._slice(group, model, phase, span.t0, span.t1, args, command.row)
            if command.request_id == REGISTRATION:
                yield from self._finish(trainer, model, command, span.t1)
        if not commands:  # they were submitted before the journals begin, or nobody says which
            yield from self._slice(group, model, phase, span.t0, span.t1, dict(about))

    def _work(self, name: str, models: Sequence[str], about: Entry) -> tuple[str, Entry]:
        """What a lane's work for these models is called, and what is said about it."""
        if self._model_id is None:
            return name, {"models": list(models), **about}
        if self._model_id in models:
            return name, {"models": [self._model_id], **about}
        return NEIGHBOR, {}

    def _is_hidden(self, model: str) -> bool:
        return self._model_id is not None and model != self._model_id

    def _slice(
        self,
        group: Group,
        track: str,
        name: str,
        start: float,
        end: float,
        args: Entry,
        row: int | None = None,
    ) -> Iterator[Entry]:
        if end < self._since:
            return
        entry = group.track(track).place(name, start, end, args, row) if end >= start else None
        if entry is None:
            self.left_out += 1
        else:
            self.slices += 1
            yield entry

    def _waiting(self, trainer: TracedTrainer) -> Iterator[Entry]:
        """How many commands wait, from change to change."""
        waiting = 0
        for t, by in sorted(trainer.changes, key=lambda change: change.t):
            waiting += by
            if t >= self._since:
                yield trainer.models.count(WAITING, t, commands=waiting)


def _request(command: TracedCommand) -> Entry:
    return {} if command.request_id == REGISTRATION else {"request": command.request_id}
