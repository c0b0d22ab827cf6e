"""What a training loop pays: one call per step, and the imports."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from bench.machine import leave_free, pin_here, pin_there
from bench.measure import Bound, Figure, Results, Spread, compared, interleaved, percentile
from bench.traffic import Sender, Traffic
from lilo_timing import flush_critical_path, log_critical_path, reporting_statistics
from support.sidecar import start_sidecar

_LIMITS: Mapping[str, float] = {"lilo_engine_hook": 40, "lilo_timing": 25}
"""Milliseconds more than ``import json``."""
_FLOORS = ("logging, msgpack, socket", "dataclasses, logging")
"""What the hook, and the client, cannot do without."""


def figures(quick: bool) -> Results:
    """Against a real sidecar; interpreters are started anew for every sample."""
    rounds, calls = (2, 20) if quick else (10, 300)
    return Results([*_call(rounds, calls), *_imports(2 if quick else 15)])


def _call(rounds: int, calls: int) -> list[Figure]:
    wall: list[float] = []
    cpu: list[float] = []
    woken: list[float] = []
    elsewhere: list[float] = []
    with tempfile.TemporaryDirectory() as directory, start_sidecar(Path(directory)) as sidecar:
        pin_there(sidecar.process.pid)
        sender = Sender(sidecar.socket)
        sender.send(sender.pack(Traffic().events(100)))
        with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
            _report(sidecar.url, 5)  # the first one imports httpx
            for _ in range(rounds):
                pin_here()
                samples = _report(sidecar.url, calls)
                wall.append(percentile([sample.wall for sample in samples], 99))
                cpu.append(percentile([sample.cpu for sample in samples], 50))
                woken.append(percentile([sample.waking for sample in samples], 99))
                leave_free()
                samples = _report(sidecar.url, calls)
                elsewhere.append(percentile([sample.wall for sample in samples], 99))
        pin_here()
        assert reporting_statistics().failed == 0
    return [
        Figure(
            "log_critical_path on the caller's thread, p99",
            "µs",
            Spread.of(wall),
            bounds=(Bound("value", "at most", 50),),
            note="wall time, one call a step, each reported before the next",
        ),
        Figure("… by the thread's CPU time, p50", "µs", Spread.of(cpu)),
        Figure(
            "… waking a thread with one put into a queue, as often, p99", "µs", Spread.of(woken)
        ),
        Figure(
            "… where the reporting thread has a core of its own, p99", "µs", Spread.of(elsewhere)
        ),
    ]


class _Call(NamedTuple):
    """Microseconds."""

    wall: float
    cpu: float
    waking: float
    """Wall time of waking a thread that does nothing, after the report."""


def _report(url: str, calls: int) -> list[_Call]:
    samples = []
    with _waking() as waking:
        for step in range(calls):
            began, spent = time.perf_counter_ns(), time.thread_time_ns()
            log_critical_path("model-0", step=step, base_url=url, api_key="none")
            spent = time.thread_time_ns() - spent
            wall = time.perf_counter_ns() - began
            assert flush_critical_path()
            samples.append(_Call(wall / 1000, spent / 1000, waking()))
    return samples


@contextlib.contextmanager
def _waking() -> Iterator[Callable[[], float]]:
    """What tells the microseconds that waking a thread takes, the least of handing over."""
    queue: SimpleQueue[bool] = SimpleQueue()
    heard: SimpleQueue[bool] = SimpleQueue()

    def run() -> None:
        while queue.get():
            heard.put(True)

    def microseconds() -> float:
        began = time.perf_counter_ns()
        queue.put(True)
        took = time.perf_counter_ns() - began
        heard.get()  # it would be in the way of what is measured next
        return took / 1000

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield microseconds
    finally:
        queue.put(False)
        thread.join()


def _imports(rounds: int) -> list[Figure]:
    contestants = ("json", *_LIMITS, *_FLOORS)
    # Compiled once, as installed packages are, whatever this shell says about it.
    with tempfile.TemporaryDirectory() as compiled:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": compiled}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)

        def starting(what: str) -> Callable[[], float]:
            return lambda: _milliseconds(f"import {what}", environment)

        for what in contestants:
            _milliseconds(f"import {what}", environment)
        found = interleaved(rounds, {what: starting(what) for what in contestants})
    figures = []
    for what in (*_LIMITS, *_FLOORS):
        limit = _LIMITS.get(what)
        bounds = () if limit is None else (Bound("difference", "at most", limit),)
        name = f"import {what}" if bounds else f"… import {what}"
        note = "CPU time of a whole interpreter" if bounds else ""
        figures.append(
            compared(name, "ms", found[what], "import json", found["json"], *bounds, note=note)
        )
    loaded = "sum(name.startswith('httpx') for name in sys.modules)"
    figures.append(
        Figure(
            "modules of httpx loaded by import lilo_timing",
            "modules",
            Spread.of([float(_said(f"import lilo_timing, sys; print({loaded})"))]),
            bounds=(Bound("value", "at most", 0),),
        )
    )
    return figures


def _milliseconds(statement: str, environment: Mapping[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    _said(statement, environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def _said(statement: str, environment: Mapping[str, str] = os.environ) -> str:
    command = [sys.executable, "-c", statement]
    return subprocess.run(
        command, check=True, capture_output=True, text=True, env=environment
    ).stdout
