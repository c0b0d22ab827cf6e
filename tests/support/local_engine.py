"""The local deployment's engine on the real torch backend, all in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import trio

from lilo_engine_hook.device import DeviceTimer
from lilo_local.backend.adapters import AdapterHost
from lilo_local.backend.model import ModelShape
from lilo_local.backend.server import Backend
from lilo_local.engine import Engine, HttpBackend

TIMEOUT = 30.0
"""Seconds until a test that waits gives up: the first use of torch takes its time."""
TINY = ModelShape(context=16, width=16, layers=1, heads=2, rank=2, slots=4)


class Gate(httpx.AsyncBaseTransport):
    """Lets requests to the backend pass, or holds those to given paths back until opened."""

    def __init__(self, transport: httpx.AsyncBaseTransport) -> None:
        self._transport = transport
        self._closed: dict[str, trio.Event] = {}
        self.arrived = trio.Event()
        """Set when a request waits at a closed path."""
        self.requests: list[str] = []

    def close_at(self, path: str) -> None:
        """Hold requests to ``path`` from now on."""
        self._closed[path] = trio.Event()
        self.arrived = trio.Event()

    def open_at(self, path: str) -> None:
        """Let those pass that wait, and all later ones."""
        self._closed.pop(path).set()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        self.requests.append(path)
        if path in self._closed:
            self.arrived.set()
            await self._closed[path].wait()
        return await self._transport.handle_async_request(request)


class Recorder:
    """An observer that keeps every call: ``(method, arguments, keyword arguments)``."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self._waiters = trio.lowlevel.ParkingLot()

    def __getattr__(self, method: str) -> Any:
        def record(*args: Any, **attrs: Any) -> None:
            self.calls.append((method, args, attrs))
            self._waiters.unpark_all()

        return record

    async def quiet(self, timeout: float = TIMEOUT) -> None:
        """Return when the gpu lane has drained; TooSlowError after ``timeout`` seconds."""
        with trio.fail_after(timeout):
            while self.calls[-1][:2] != ("set_activity", ("gpu", None)):
                await self._waiters.park()

    def named(self, method: str) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        """The calls of one method."""
        return [(args, attrs) for name, args, attrs in self.calls if name == method]

    def methods(self) -> list[str]:
        """The names of the calls, in order."""
        return [name for name, _, _ in self.calls]

    def spans(self) -> list[tuple[list[str], str, str]]:
        """Models, name and lane of each span."""
        return [(args[0], args[1], args[2]) for args, _ in self.named("span")]


class RunningEngine:
    """An engine with its lanes, its recorder, and the gate in front of its backend."""

    def __init__(self, engine: Engine, recorder: Recorder, gate: Gate) -> None:
        self.engine = engine
        self.recorder = recorder
        self.gate = gate

    async def model(self, model_id: str) -> None:
        """A model that takes commands."""
        assert (await settled(self.engine.create_model(model_id)))["state"] == "done"


@asynccontextmanager
async def running_engine(directory: Path, **options: Any) -> AsyncIterator[RunningEngine]:
    """An `Engine` with ``options``, running. Its timing observer uses ``LILO_TIMING_SOCKET``."""
    timer = DeviceTimer()
    app = Backend(AdapterHost(TINY), directory, timer).app()
    gate = Gate(httpx.ASGITransport(app=app))
    recorder = Recorder()
    async with httpx.AsyncClient(transport=gate, base_url="http://backend") as client:
        backend = HttpBackend(client)
        engine = Engine(backend, await backend.limits(), observer=recorder, **options)
        gate.requests.clear()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(engine.run)
            try:
                yield RunningEngine(engine, recorder, gate)
            finally:
                nursery.cancel_scope.cancel()
        engine.observer.close()
        timer.close()


async def settled(future: Any, timeout: float = TIMEOUT) -> dict[str, Any]:
    """What a future ends with; an AssertionError if it does not."""
    await future.wait(timeout)
    assert future.state != "pending", f"{future.operation} has not ended within {timeout} s"
    answer: dict[str, Any] = future.to_json()
    return answer


def data(*lengths: int, first: int = 1) -> dict[str, Any]:
    """A payload of one sequence of each length."""
    return {
        "data": [
            {
                "model_input": {"tokens": [first + i for i in range(length)], "length": length},
                "loss_fn_inputs": {"target_tokens": [first + 1 + i for i in range(length)]},
            }
            for length in lengths
        ]
    }
