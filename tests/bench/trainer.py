"""What a trainer pays for being observed: on the thread that calls, and as a process."""

from __future__ import annotations

import enum
import tempfile
import time
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from bench.accumulating import AccumulatingObserver
from bench.floors import FirstCall
from bench.machine import pin_here, pin_there
from bench.measure import Bound, Curve, Line, Results, compared, interleaved
from bench.traffic import EVENTS_PER_COMMAND
from lilo_engine_hook import TimingObserver, _producer
from support.sidecar import SidecarProcess, start_sidecar

_ACCUMULATOR = "the same calls into dicts under a lock"
_PACES = (10, 100, 500, 1000, 2000)
"""Commands per second: a busy trainer has tens."""


class Kind(enum.Enum):
    """As engines have them."""

    FORWARD_BACKWARD = "forward_backward"


@dataclass(frozen=True, slots=True)
class Command:
    """An operation whose attributes cost nothing: the engine's own cost is nobody's here."""

    model_id: str
    request_id: str
    seq_id: int
    models: list[str]
    request_ids: list[str]
    kind: Kind = Kind.FORWARD_BACKWARD
    payload: object = None


def commands(count: int, models: int = 8) -> list[Command]:
    """So many commands, of each model in turn."""
    made = []
    for seq in range(count):
        model = f"model-{seq % models}"
        made.append(Command(model, f"{model}:{seq}", seq, [model], [f"{model}:{seq}"]))
    return made


def observe(observer: Any, some: Sequence[Command]) -> None:
    """What an engine calls for each command."""
    for command in some:
        observer.begin(command)
        observer.state(command.models, "executing:forward_backward")
        observer.span(
            command.models,
            "forward_backward",
            "gpu",
            time.time(),
            request_ids=command.request_ids,
            n=1,
        )
        observer.finish(command, "done")


def engine() -> Callable[[Any, Sequence[Command]], None]:
    """An engine of one's own, that calls as `observe` does. The interpreter prepares a place of
    code for what it meets there: one that met several observers would be slower with each, and
    an engine has one."""
    return types.FunctionType(observe.__code__.replace(), globals())


def figures(quick: bool) -> Results:
    """Of the hook, with a real sidecar on the other core."""
    _producer.FLUSH_TIMEOUT = 10.0  # type: ignore[misc]  # however busy the machine is
    with tempfile.TemporaryDirectory() as directory, start_sidecar(Path(directory)) as sidecar:
        pin_there(sidecar.process.pid)
        pin_here()
        rounds, some = (2, commands(500)) if quick else (15, commands(1500))
        results = Results()
        _one_command(results, sidecar, some, rounds)
        _one_span(results, sidecar.socket, len(some), rounds)
        paces = _PACES[1::2] if quick else _PACES
        results.curves.append(_growth_with_pace(sidecar.socket, paces, 0.2 if quick else 1.2))
        return results


def _per(count: int, clock: Callable[[], int], run: Callable[[], object]) -> float:
    """Microseconds for each of ``count``."""
    began = clock()
    run()
    return (clock() - began) / 1000 / count


def _one_command(
    results: Results, sidecar: SidecarProcess, some: Sequence[Command], rounds: int
) -> None:
    accumulator, floor = AccumulatingObserver(), FirstCall()
    for_hook, for_process, for_accumulator, for_floor = engine(), engine(), engine(), engine()

    def hook_thread() -> float:
        observer = TimingObserver(sidecar.socket)
        spent = _per(len(some), time.thread_time_ns, lambda: for_hook(observer, some))
        observer.close()
        return spent

    def hook_process() -> float:
        def run() -> None:
            observer = TimingObserver(sidecar.socket)
            for_process(observer, some)
            observer.close()  # returns once everything is acknowledged

        sidecar.timing(reset=True)
        spent = _per(len(some), time.process_time_ns, run)
        applied = sidecar.timing(reset=True)["delivery"]["applied"]
        assert applied == EVENTS_PER_COMMAND * len(some), "not all was delivered"
        return spent

    def accumulator_thread() -> float:
        return _per(len(some), time.thread_time_ns, lambda: for_accumulator(accumulator, some))

    def floor_thread() -> float:
        floor.items.clear()
        return _per(len(some), time.thread_time_ns, lambda: for_floor(floor, some))

    def floor_packed() -> float:
        floor_thread()
        return _per(len(some), time.thread_time_ns, floor.packed)

    found = interleaved(
        rounds,
        {
            "hook": hook_thread,
            "accumulator": accumulator_thread,
            "process": hook_process,
            "floor": floor_thread,
            "packed": floor_packed,
        },
    )
    results.figures += [
        compared(
            "trainer thread, one command",
            "µs",
            found["hook"],
            _ACCUMULATOR,
            found["accumulator"],
            Bound("ratio", "at most", 0.20),
            note="CPU time of the calling thread: begin, state, span and finish",
        ),
        compared(
            "trainer process, one command",
            "µs",
            found["process"],
            _ACCUMULATOR,
            found["accumulator"],
            Bound("ratio", "at most", 0.35),
            note="CPU time of all its threads, until the sidecar has acknowledged everything",
        ),
        compared(
            "… calls that append a tuple, nothing else",
            "µs",
            found["floor"],
            _ACCUMULATOR,
            found["accumulator"],
            note="no bound, no guard",
        ),
        compared(
            "… packing those tuples in one call of msgpack",
            "µs",
            found["packed"],
            _ACCUMULATOR,
            found["accumulator"],
            note="no check, no numbers, no socket",
        ),
    ]


class _Nowhere(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


def _one_span(results: Results, socket: Path, count: int, rounds: int) -> None:
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(_Nowhere()))
    tracer = provider.get_tracer("bench")
    models, ids = ["model-0"], ["model-0:1"]

    def hook() -> float:
        observer = TimingObserver(socket)

        def run() -> None:
            for _ in range(count):
                observer.span(models, "forward_backward", "gpu", 1.0, 2.0, request_ids=ids, n=1)

        spent = _per(count, time.thread_time_ns, run)
        observer.close()
        return spent

    def otel() -> float:
        def run() -> None:
            for _ in range(count):
                span = tracer.start_span(
                    "forward_backward",
                    start_time=1_000_000_000,
                    attributes={"models": models, "lane": "gpu", "request_ids": ids, "n": 1},
                )
                span.end(end_time=2_000_000_000)

        spent = _per(count, time.thread_time_ns, run)
        provider.force_flush()
        return spent

    found = interleaved(rounds, {"hook": hook, "otel": otel})
    provider.shutdown()
    results.figures.append(
        compared(
            "trainer thread, one span",
            "µs",
            found["hook"],
            "OpenTelemetry SDK, batch processor, exported nowhere",
            found["otel"],
            Bound("ratio", "at most", 0.04),
        )
    )


def _growth_with_pace(socket: Path, paces: Sequence[int], seconds: float) -> Curve:
    """The trainer process's CPU time beside the pace of its commands: the hook's thread looks
    into its queue 25 times a second, whether there is much or little."""

    def paced(observer: Any, pace: int) -> float:
        some = commands(max(1, int(pace * seconds)))
        began, spent = time.monotonic(), time.process_time()
        for number, command in enumerate(some):
            time.sleep(max(0.0, began + number / pace - time.monotonic()))
            observe(observer, [command])
        observer.close()
        return (time.process_time() - spent) / (time.monotonic() - began)

    class Closable(AccumulatingObserver):
        def close(self) -> None: ...

    hook, accumulator = Line("the hook", []), Line("dicts under a lock", [])
    for pace in paces:
        hook.points.append((pace, 100 * paced(TimingObserver(socket), pace)))
        accumulator.points.append((pace, 100 * paced(Closable(), pace)))
    return Curve(
        "trainer-pace",
        "Trainer process beside the pace of its commands, waiting in between included",
        "commands per second",
        "% of a core",
        [hook, accumulator],
    )
