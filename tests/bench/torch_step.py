"""A training step of the local deployment's torch trainer, with the hook and without."""

from __future__ import annotations

import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import torch
import trio

from bench.machine import pin_there
from bench.measure import Bound, Figure, Ratio, Results, Spread
from lilo_engine_hook import TimingObserver
from lilo_local.backend.adapters import AdapterHost
from lilo_local.backend.server import Backend
from lilo_local.engine import Engine, HttpBackend
from support.local_engine import data, settled
from support.sidecar import start_sidecar

_SEQUENCES, _TOKENS = 4, 128


class Absent(TimingObserver):
    """Stands where the engine wants a timing observer, and does nothing at all."""

    def __init__(self) -> None: ...

    def _ignore(self, *args: Any, **attrs: Any) -> None: ...

    register_model = forget_model = begin = reuse = finish = _ignore
    set_activity = state = span = backend_ready = serving_ready = close = _ignore


def figures(quick: bool) -> Results:
    """One torch model; an engine with the hook and two without, a step of each in turn. How those
    two differ is what this machine can tell apart."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as directory, start_sidecar(Path(directory)) as sidecar:
        pin_there(sidecar.process.pid)
        return trio.run(_compare, sidecar.socket, Path(directory), 4 if quick else 200)


async def _compare(socket: Path, directory: Path, pairs: int) -> Results:
    app = Backend(AdapterHost(), directory).app()
    transport = httpx.ASGITransport(app=app)
    async with (
        httpx.AsyncClient(transport=transport, base_url="http://backend") as client,
        _running(client, TimingObserver(socket)) as watched,
        _running(client, Absent()) as alone,
        _running(client, Absent()) as alike,
    ):
        engines = {"watched": watched, "alone": alone, "alike": alike}
        took: dict[str, list[_Took]] = {model: [] for model in engines}
        for model, engine in engines.items():
            await settled(engine.create_model(model))
        for pair in range(-4, pairs):
            # Forwards and backwards: what drifts meets all alike.
            for model in engines if pair % 2 else reversed(engines):
                step = await _step(engines[model], model, 2 * (pair + 4) + 1)
                if pair >= 0:
                    took[model].append(step)
    work = f"forward_backward of {_SEQUENCES * _TOKENS} tokens and optim_step"
    wall, cpu = (
        {model: [getattr(step, clock) for step in steps] for model, steps in took.items()}
        for clock in ("wall", "cpu")
    )
    equal = Bound("ratio", "equal within", 0.001)
    with_hook = "torch trainer, one step with the hook"
    by_cpu = "… by the process's CPU time, the hook's own thread included"
    return Results(
        [
            _figure(with_hook, wall["watched"], wall["alone"], equal, note=work),
            _figure(by_cpu, cpu["watched"], cpu["alone"]),
            _figure("… another engine without the hook", wall["alike"], wall["alone"]),
        ]
    )


class _Took(NamedTuple):
    """One step, in milliseconds."""

    wall: float
    cpu: float
    """Of all threads of the process."""


def _figure(
    name: str, with_hook: Sequence[float], without: Sequence[float], *bounds: Bound, note: str = ""
) -> Figure:
    # Pairs of pairs: in each, both were first once.
    ours = [sum(two) / 2 for two in zip(with_hook[::2], with_hook[1::2], strict=True)]
    theirs = [sum(two) / 2 for two in zip(without[::2], without[1::2], strict=True)]
    return Figure(
        name,
        "ms",
        Spread.of(ours),
        "without",
        Spread.of(theirs),
        Ratio.of(ours, theirs),
        bounds,
        note=note,
    )


@asynccontextmanager
async def _running(client: httpx.AsyncClient, timing: TimingObserver) -> AsyncIterator[Engine]:
    backend = HttpBackend(client)
    engine = Engine(backend, await backend.limits(), observer=timing)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(engine.run)
        yield engine
        nursery.cancel_scope.cancel()
    timing.close()


async def _step(engine: Engine, model: str, seq: int) -> _Took:
    payload = data(*[_TOKENS] * _SEQUENCES)
    began, spent = time.perf_counter(), time.process_time()
    work = engine.submit(model, seq, "forward_backward", payload)
    update = engine.submit(model, seq + 1, "optim_step", {})
    for future in (work, update):
        assert (await settled(future, 60))["state"] == "done"
    return _Took(1000 * (time.perf_counter() - began), 1000 * (time.process_time() - spent))
