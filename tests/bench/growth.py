"""How the sidecar's cost grows with models, phases, producers and readers."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.getter import Getter
from bench.machine import cpu_seconds, pin_here, pin_there
from bench.measure import Curve, Line, Results, percentile
from bench.traffic import EVENTS_PER_COMMAND, Sender, Traffic
from support.sidecar import start_sidecar

_AXES = {
    "models": (1, 4, 16, 64, 256),
    "kinds": (1, 2, 4, 8, 16),
    "producers": (1, 2, 4, 8, 16),
}
_READERS = (0, 1, 2, 4, 8)


def figures(quick: bool) -> Results:
    """Curves only."""
    pin_here()
    commands, rounds = (100, 1) if quick else (2000, 3)
    results = Results()
    for axis, title in (
        ("models", "One event beside the number of models, of 2 phases each"),
        ("kinds", "One event beside the phases of a model, 16 models"),
        ("producers", "One event beside the number of producers, 16 models of 2 phases each"),
    ):
        values = _AXES[axis][:1] if quick else _AXES[axis]
        scale = 2 if axis == "kinds" else 1
        points = [
            (float(value * scale), _microseconds(axis, value, commands, rounds)) for value in values
        ]
        x = "phases" if axis == "kinds" else axis
        results.curves.append(
            Curve(f"ingest-{x}", title, x, "µs of the sidecar's CPU time", [Line("event", points)])
        )
    results.curves.append(_answers(5 if quick else 200, _READERS[:2] if quick else _READERS))
    return results


def _microseconds(axis: str, value: int, commands: int, rounds: int) -> float:
    """CPU time of a fresh sidecar for one event."""
    shape = {"models": 16, "kinds": 1, "producers": 1, axis: value}
    models, kinds, producers = shape["models"], shape["kinds"], shape["producers"]
    with tempfile.TemporaryDirectory() as directory, start_sidecar(Path(directory)) as sidecar:
        pin_there(sidecar.process.pid)
        # Each is a trainer of its own, with the same models.
        senders = [Sender(sidecar.socket, f"boot-{number}") for number in range(producers)]
        traffic = Traffic(models, kinds)
        samples = []
        for number in range(-1, rounds):
            part = max(models * kinds if number < 0 else 1, commands // producers)
            frames = [sender.pack(traffic.events(part)) for sender in senders]
            before = cpu_seconds(sidecar.process.pid)
            for sender, some in zip(senders, frames, strict=True):
                sender.post(some)
            for sender in senders:
                sender.wait()
            spent = cpu_seconds(sidecar.process.pid) - before
            if number >= 0:
                samples.append(1e6 * spent / (part * producers * EVENTS_PER_COMMAND))
    return statistics.median(samples)


def _answers(requests: int, readers: Sequence[int]) -> Curve:
    """An answer for one model beside the number of readers that have an interval of their own."""
    few, many = Line("2 phases", []), Line("32 phases", [])
    for line, kinds in ((few, 1), (many, 16)):
        with tempfile.TemporaryDirectory() as directory, start_sidecar(Path(directory)) as sidecar:
            pin_there(sidecar.process.pid)
            sender, traffic = Sender(sidecar.socket), Traffic(1, kinds)
            getter = Getter(sidecar.url)
            for count in range(max(readers) + 1):
                sender.send(sender.pack(traffic.events(10 * kinds)))
                if count:
                    path = f"/api/v1/timing?model_id=model-0&reader=reader-{count}&reset=true"
                    getter.ask_for(path)
                    getter.get()
                getter.ask_for("/api/v1/timing?model_id=model-0")
                times = [getter.milliseconds() for _ in range(requests)]
                if count in readers:
                    line.points.append((count, percentile(times, 50)))
            getter.close()
    return Curve(
        "answer-readers",
        "An answer for one model of an idle sidecar, p50",
        "readers with an interval of their own",
        "ms",
        [few, many],
    )
