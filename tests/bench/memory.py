"""What a sidecar holds: with everything at its bound, and after a million models."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.getter import Getter
from bench.machine import pin_here, pin_there
from bench.measure import Bound, Curve, Figure, Line, Ratio, Results, Spread
from bench.traffic import Sender, Traffic
from lilo_engine_hook import wire
from support.sidecar import SidecarProcess, start_sidecar, wait_until

_MIB = 2**20
MODELS, KINDS = 256, 16
"""A wait and an execution of each kind: 256 models of 32 phases are all 8,192 series."""
SWEEPS = 20
"""Of one command of each model and kind: 81,920 spans, which is the gpu lane's whole timeline."""
READERS = 8
_SPANS = 82_000
"""That fill the gpu lane's timeline."""
_SETTLED = 100_000
"""Models after which all that is kept of those that went has been full and renewed: 8,192 ids, 64
models, and a snapshot with them."""
_PART = 2000
"""Models packed at a time."""


def figures(quick: bool) -> Results:
    """Each sidecar is its own; memory needs no rounds."""
    pin_here()
    results = Results()
    with tempfile.TemporaryDirectory() as directory:
        _full(results, Path(directory), quick=quick)
    with tempfile.TemporaryDirectory() as directory:
        models, scale = (5000, 0.05) if quick else (1_000_000, 1.0)
        _come_and_go(results, Path(directory), models, scale)
    return results


def _mib(sidecar: SidecarProcess) -> float:
    return sidecar.rss_bytes() / _MIB


def _full(results: Results, directory: Path, *, quick: bool) -> None:
    models, sweeps = (8, 3) if quick else (MODELS, SWEEPS)
    with start_sidecar(directory) as sidecar:
        pin_there(sidecar.process.pid)
        idle = _mib(sidecar)
        sender, traffic = Sender(sidecar.socket), Traffic(models, KINDS)
        for sweep in range(sweeps):
            sender.send(sender.pack(traffic.events(models * KINDS)))
            if sweep < 2 * READERS:
                _read_as(sidecar.url, models, f"reader-{sweep % READERS}")
        full = _mib(sidecar)
        size = wait_until(lambda: _state_bytes(directory), bool) / _MIB
    value = Spread.of([full])
    results.figures.append(
        Figure(
            f"resident memory, full: {models} models, {2 * KINDS} phases, {READERS} readers each",
            "MiB",
            value,
            "an idle sidecar",
            Spread.of([idle]),
            Ratio(full / idle, full / idle, full / idle),
            (Bound("ratio", "at most", 3), Bound("value", "at most", 96)),
            note=f"{size:.1f} MiB of state on the disk",
        )
    )


def _state_bytes(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.glob("*.state/*"))


_acks: dict[tuple[str, int], str] = {}


def _read_as(url: str, models: int, reader: str) -> None:
    """End the reader's interval of each model. What it was given before, it has received."""
    getter = Getter(url)
    for model in range(models):
        ack = _acks.get((reader, model))
        path = f"/api/v1/timing?model_id=model-{model}&reader={reader}&reset=true"
        getter.ask_for(path if ack is None else f"{path}&ack={ack}")
        _acks[reader, model] = json.loads(getter.get())["interval"]["cursor"]
    getter.close()


def _come_and_go(results: Results, directory: Path, models: int, scale: float) -> None:
    settled = int(scale * _SETTLED)
    line = Line("resident", [])
    with start_sidecar(directory) as sidecar:
        pin_there(sidecar.process.pid)
        sender = Sender(sidecar.socket)
        idle = _mib(sidecar)
        sender.send(sender.pack(_spans(int(scale * _SPANS))))
        sender.send(sender.pack(_lives(0, settled)))
        before = _mib(sidecar)
        line.points.append((settled, before))
        step = models // 10
        for first in range(settled, settled + models, step):
            last = min(first + step, settled + models)
            for part in range(first, last, _PART):
                # What is packed next, is packed while the sidecar works.
                sender.post(sender.pack(_lives(part, min(_PART, last - part))))
            sender.wait()
            line.points.append((last, _mib(sidecar)))
        after = _mib(sidecar)
    results.figures.append(
        Figure(
            f"resident memory after {models:,} models came and went",
            "MiB",
            Spread.of([after]),
            f"after the first {settled:,}, with a full timeline",
            Spread.of([before]),
            None,
            (Bound("difference", "at most", 2),),
            note=f"{idle:.1f} MiB before the first",
        )
    )
    results.curves.append(
        Curve(
            "memory-models",
            "Resident memory while models come and go",
            "models so far",
            "MiB",
            [line],
        )
    )


def _spans(count: int) -> Iterator[wire.Event]:
    for number in range(count):
        t = 500.0 + number / 1000
        yield wire.Span(("resident",), "forward", "gpu", t, t + 1e-4, None, None, 1, True, None)


def _lives(first: int, count: int) -> Iterator[wire.Event]:
    """Models that register and go."""
    for number in range(first, first + count):
        t, model = 1000.0 + number / 1000, f"tenant-{number:08d}"
        yield wire.Register(t, model)
        yield wire.Forget(t + 2e-4, model)
