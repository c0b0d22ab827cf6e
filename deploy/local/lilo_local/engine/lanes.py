"""The lanes: what runs now. One serialized gpu lane, and one lane for each sort of persistence.

The observer is asked for anew at each call, since an engine's observer may be exchanged.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import trio

from .backend import Backend, BackendFailureError
from .operations import PERSISTENCE_LANES, Kind, Operation
from .scheduler import Scheduler

GPU: Final = "gpu"

Start = Callable[[Operation], None]
"""An operation was taken off the queue."""
Finish = Callable[[Operation, "dict[str, Any] | None", "str | None"], None]
"""Ends an operation: its result, or its error."""


class PersistenceLane:
    """Writes captured weights, one operation at a time."""

    def __init__(
        self,
        name: str,
        backend: Backend,
        observer: Callable[[], Any],
        finish: Finish,
        freed: Callable[[], None],
    ) -> None:
        self.name = name
        self.busy = False
        """From the capture that is meant for it to the end of the write."""
        self._backend = backend
        self._observer = observer
        self._finish = finish
        self._freed = freed
        self._send, self._receive = trio.open_memory_channel[tuple[Operation, str]](1)

    def put(self, operation: Operation, capture: str) -> None:
        """Hand over captured weights. The lane must have been taken (`busy`) before."""
        self._send.send_nowait((operation, capture))

    def release(self) -> None:
        """The lane is free again: its work is done, or its capture failed."""
        self.busy = False
        self._freed()

    async def run(self) -> None:
        """Until cancelled."""
        async for operation, capture in self._receive:
            self._observer().set_activity(self.name, operation)
            result = error = None
            t0 = time.time()
            try:
                result = await self._backend.persist(operation, capture)
            except BackendFailureError as failure:
                error = str(failure)
            t1 = time.time()
            observer = self._observer()
            observer.span(
                [operation.model_id],
                f"persist:{operation.kind}",
                self.name,
                t0,
                t1,
                request_ids=[operation.request_id],
                seq_ids=[operation.seq_id],
                n=1,
                ok=error is None,
            )
            observer.set_activity(self.name, None)
            self._finish(operation, result, error)
            self.release()


class GpuLane:
    """Runs the scheduler's batches one after the other. ``delay`` (seconds) holds each batch back
    before it starts: an artificial overhead, for tests."""

    def __init__(
        self,
        scheduler: Scheduler,
        backend: Backend,
        observer: Callable[[], Any],
        start: Start,
        finish: Finish,
        delay: float,
    ) -> None:
        self._scheduler = scheduler
        self._backend = backend
        self._observer = observer
        self._start = start
        self._finish = finish
        self._delay = delay
        self._work = trio.Event()
        self.persistence = {
            name: PersistenceLane(name, backend, observer, finish, self.wake)
            for name in PERSISTENCE_LANES.values()
        }

    def wake(self) -> None:
        """Something may be ready to run."""
        self._work.set()

    async def run(self) -> None:
        """Until cancelled."""
        working = False
        while True:
            busy = {name for name, lane in self.persistence.items() if lane.busy}
            batch = self._scheduler.next_batch(busy)
            if batch:
                working = True
                for operation in batch:
                    self._start(operation)
                if self._delay:
                    await trio.sleep(self._delay)
                await self._execute(batch)
                continue
            if working:
                working = False
                observer = self._observer()
                observer.state(self._scheduler.models, "idle")
                observer.set_activity(GPU, None)
            await self._work.wait()
            self._work = trio.Event()

    async def _execute(self, batch: list[Operation]) -> None:
        name = batch[0].span_name
        models = [operation.model_id for operation in batch]
        lane = self.persistence.get(batch[0].persistence_lane or "")
        if lane is not None:
            lane.busy = True
        observer = self._observer()
        observer.set_activity(GPU, batch[0])
        t0 = time.time()
        observer.state(models, f"executing:{name}")
        results: list[Any] = []
        error = None
        try:
            results = await self._run(batch)
        except BackendFailureError as failure:
            error = str(failure)
        t1 = time.time()
        # The model's creation is no request of a client's, so it has no request id to name.
        ids: dict[str, Any] = {}
        if batch[0].kind is not Kind.ACCEPT:
            ids["request_ids"] = [operation.request_id for operation in batch]
            ids["seq_ids"] = [operation.seq_id for operation in batch]
        self._observer().span(models, name, GPU, t0, t1, **ids, n=len(batch), ok=error is None)
        if lane is not None and error is None:
            lane.put(batch[0], results[0])
            return
        if lane is not None:
            lane.release()
        for index, operation in enumerate(batch):
            self._finish(operation, None if error else results[index], error)

    async def _run(self, batch: list[Operation]) -> list[Any]:
        first = batch[0]
        if first.kind is Kind.ACCEPT:
            await self._backend.create(first.model_id)
            return [{"model_id": first.model_id}]
        if first.persistence_lane:
            return [await self._backend.capture(first)]
        return list(await self._backend.run(batch))
