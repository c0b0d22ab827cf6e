"""The engine: models, commands and futures, and the lanes they run on."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any, Final

import trio

from lilo_engine_hook import Observers, TimingObserver, find_timing, with_timing

from .backend import Backend, BackendFailureError
from .errors import ConflictError, UnknownModelError
from .futures import Future, Futures
from .lanes import GpuLane
from .operations import Kind, Limits, Operation, operation_of, payload_tokens
from .scheduler import Scheduler

TOKEN_BUDGET: Final = 2048
"""Tokens of a coalesced batch: about a quarter of a second on one core. A larger one serves more
models at once, and makes each of them wait longer for the others."""

_log = logging.getLogger("lilo_local.engine")


@dataclass(slots=True)
class _Model:
    started: int = 0
    """Operations taken off the queue and not finished."""
    created: bool = False
    unloading: bool = False
    quiet: trio.Event = field(default_factory=trio.Event)
    """Set when it unloads and nothing of it runs."""


class Engine:
    """One trio task tree (`run`), and calls from tasks of the same loop.

    ``observer`` is told everything, and so is a timing observer: it is composed with whatever is
    passed here or assigned to `observer` later, None included, so timing is always on.
    ``scheduler_delay`` holds every batch back by that many seconds, as an artificial overhead.
    """

    def __init__(
        self,
        backend: Backend,
        limits: Limits,
        *,
        observer: Any = None,
        token_budget: int = TOKEN_BUDGET,
        scheduler_delay: float = 0.0,
    ) -> None:
        self._backend = backend
        self._limits = limits
        timing = find_timing(observer) or TimingObserver(weigh=payload_tokens)
        self._observer = with_timing(observer, timing)
        self._scheduler = Scheduler(token_budget)
        self._futures = Futures()
        self._models: dict[str, _Model] = {}
        self._stopped = False
        self._gpu = GpuLane(
            self._scheduler,
            backend,
            lambda: self._observer,
            self._start,
            self._finish,
            scheduler_delay,
        )

    @property
    def observer(self) -> Observers:
        """What is told: never without a timing observer."""
        return self._observer

    @observer.setter
    def observer(self, observer: Any) -> None:
        before = self.timing
        self._observer = with_timing(observer, before)
        if self.timing is not before:
            before.close()  # the new one brings its own: two would be two trainers

    @property
    def timing(self) -> TimingObserver:
        """The timing observer in `observer`."""
        timing = find_timing(self._observer)
        if timing is None:
            raise RuntimeError("an engine without a timing observer; the property prevents it")
        return timing

    async def run(self) -> None:
        """The lanes, until cancelled."""
        async with trio.open_nursery() as nursery:
            for lane in self._gpu.persistence.values():
                nursery.start_soon(lane.run)
            nursery.start_soon(self._gpu.run)

    # --- what clients ask for -------------------------------------------------------------

    def create_model(self, model_id: str, spec: object = None) -> Future:
        """A new model under a name not in use; its future is done when it takes commands, which
        may be submitted before. Raises `ConflictError`, `UnknownModelError` after `stop`."""
        self._refuse_if_stopped()
        if model_id in self._models:
            raise ConflictError(f"there is a model {model_id} already")
        creation = Operation(model_id, 0, Kind.ACCEPT)
        self._models[model_id] = _Model()
        self._scheduler.add(creation)
        future = self._futures.add(creation)
        self._observer.register_model(model_id, spec)
        self._gpu.wake()
        return future

    def submit(self, model_id: str, seq_id: object, kind: object, payload: object) -> Future:
        """A command. Submitting a request again gives the future it has already. Raises
        `EngineError`: the command then was not queued."""
        self._refuse_if_stopped()
        model = self._models.get(model_id)
        if model is None or model.unloading:
            raise UnknownModelError(f"there is no model {model_id} here")
        operation = operation_of(model_id, seq_id, kind, payload, self._limits)
        there = self._futures.find(operation.request_id)
        if there is not None:
            if there.operation.kind is not operation.kind:
                raise ConflictError(
                    f"{operation.request_id} is a {there.operation.kind}, not a {kind}; "
                    f"give each command a seq_id of its own"
                )
            self._observer.reuse(operation.request_id)
            return there
        self._scheduler.submit(operation)
        future = self._futures.add(operation)
        self._observer.begin(operation)
        self._gpu.wake()
        return future

    def future(self, request_id: str) -> Future:
        """Of a request that was submitted. Raises `UnknownRequestError`."""
        return self._futures.get(request_id)

    async def unload(self, model_id: str) -> None:
        """Let go of a model: what waits fails, what runs ends first. Raises
        `UnknownModelError`."""
        self._refuse_if_stopped()
        model = self._models.get(model_id)
        if model is None or model.unloading:
            raise UnknownModelError(f"there is no model {model_id} here")
        model.unloading = True
        self._fail_queued(model_id, "the model was unloaded before this ran")
        if model.started:
            await model.quiet.wait()
        if model.created:
            try:
                await self._backend.delete(model_id)
            except BackendFailureError as failure:
                _log.warning("the backend kept the adapter of %s: %s", model_id, failure)
        self._forget(model_id)

    def stop(self) -> None:
        """Refuse what comes from now on and fail what waits, so that every client that polls is
        answered at once."""
        self._stopped = True
        for model_id in self._scheduler.models:
            self._fail_queued(model_id, "the trainer stopped before this ran")

    async def drained(self) -> None:
        """After `stop`: return when what runs has ended."""
        await self._futures.drained()

    # --- how operations run and end -------------------------------------------------------

    def _start(self, operation: Operation) -> None:
        self._models[operation.model_id].started += 1

    def _finish(
        self, operation: Operation, result: dict[str, Any] | None, error: str | None
    ) -> None:
        model_id = operation.model_id
        model = self._models[model_id]
        model.started -= 1
        self._end(operation, result, error)
        if operation.kind is Kind.ACCEPT:
            model.created = error is None
            if error is not None and not model.unloading:
                self._fail_queued(model_id, f"the model could not be created: {error}")
                self._forget(model_id)
        if model.unloading and not model.started:
            model.quiet.set()

    def _end(self, operation: Operation, result: dict[str, Any] | None, error: str | None) -> None:
        if operation.kind is not Kind.ACCEPT:
            self._observer.finish(operation, "done" if error is None else "failed")
        self._futures.finish(operation, result, error)

    def _fail_queued(self, model_id: str, error: str) -> None:
        for operation in self._scheduler.remove(model_id):
            self._end(operation, None, error)

    def _forget(self, model_id: str) -> None:
        del self._models[model_id]
        self._observer.forget_model(model_id)

    def _refuse_if_stopped(self) -> None:
        if self._stopped:
            raise UnknownModelError("the trainer is stopping; no model is served any more")
