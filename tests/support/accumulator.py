"""An observer that adds up for itself what the engine tells it: the independent second opinion that
the product's figures are held against. On purpose as plain as can be, and nothing of ours in it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

FILE_VARIABLE = "ACCUMULATOR_DIRECTORY"
"""Where each trainer's figures go, in a file named after its process id."""
HELD_UP = 5e-3
"""Seconds: a scheduler's turn or two."""
_ON_DEVICE = (".execute", ".capture")


class Accumulator:
    """Counts, totals and maxima by model (and ``*``) and phase. Written when a model goes, and at
    `close`."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / f"{os.getpid()}.json"
        self.figures: dict[str, dict[str, dict[str, float]]] = {}
        self.waiting: dict[str, tuple[str, float]] = {}

    def register_model(self, model_id: str, spec: object = None) -> None:
        self.waiting[model_id] = ("accept", time.time())

    def begin(self, operation: Any) -> None:
        self.waiting.setdefault(operation.request_id, (str(operation.kind.value), time.time()))

    def span(
        self,
        model: Any,
        name: str,
        lane: str,
        t0: float,
        t1: float | None = None,
        **attrs: Any,
    ) -> None:
        models = [model] if isinstance(model, str) else list(model)
        end = time.time() if t1 is None else t1
        for waiter in models if name == "accept" else attrs["request_ids"]:
            if waiter in self.waiting:
                kind, since = self.waiting.pop(waiter)
                self._add([waiter.partition(":")[0]], f"{kind}.queue_wait", t0 - since, 1)
        if ":" in name:
            part, _, kind = name.partition(":")
            self._add(models, f"{kind}.{part}", end - t0, attrs["n"])
        else:
            self._add(models, f"{name}.execute", end - t0, attrs["n"])

    def finish(self, operation: Any, state: object) -> None:
        self.waiting.pop(operation.request_id, None)

    def reuse(self, request_id: str) -> None: ...
    def set_activity(self, lane: str, operation: Any) -> None: ...
    def state(self, model: Any, state: str, **detail: Any) -> None: ...

    def forget_model(self, model_id: str) -> None:
        self.close()

    def close(self) -> None:
        self.file.write_text(json.dumps(self.figures))

    def _add(self, models: list[str], phase: str, seconds: float, batch: int) -> None:
        for model in [*models, "*"]:
            phases = self.figures.setdefault(model, {})
            sums = phases.setdefault(phase, {"count": 0, "total_s": 0.0, "max_s": 0.0, "batch": 0})
            sums["count"] += 1
            sums["total_s"] += seconds
            sums["max_s"] = max(sums["max_s"], seconds)
            sums["batch"] += batch


def read_all(directory: Path) -> dict[str, dict[str, dict[str, float]]]:
    """What the accumulators of all trainers wrote: figures by model; ``*`` of all together."""
    figures: dict[str, dict[str, dict[str, float]]] = {"*": {}}
    for file in directory.glob("*.json"):
        for model, phases in json.loads(file.read_text()).items():
            for phase, sums in phases.items():
                there = figures.setdefault(model, {}).setdefault(phase, dict.fromkeys(sums, 0))
                for name, value in sums.items():
                    there[name] = (
                        max(there[name], value) if name == "max_s" else there[name] + value
                    )
    return figures


def assert_agree(
    product: Mapping[str, Mapping[str, float]],
    accumulated: Mapping[str, Mapping[str, float]],
    *,
    answers: int = 1,
) -> None:
    """The product's figures of a model are those of the accumulator: the same phases, count for
    count and batch for batch; executions, captures and persists to 1e-6 s for each of the
    ``answers`` that were added up (each is rounded to 6 places); each wait to 1 ms, since the two
    read the clock one after the other, and between two such looks a busy machine may do something
    else for `HELD_UP`."""
    on_device = {phase.partition(".")[0] for phase in accumulated if phase.endswith(_ON_DEVICE)}
    measured = {f"{kind}.device" for kind in on_device}
    assert product.keys() == accumulated.keys() | measured
    for kind in on_device:
        _assert_within(product, kind)
    for phase in product.keys() - measured:
        figures = product[phase]
        sums = accumulated[phase]
        count = sums["count"]
        assert figures["count"] == count, phase
        assert figures["mean_batch"] == pytest.approx(sums["batch"] / count, abs=1e-5), phase
        waited = phase.endswith(".queue_wait")
        tolerance = HELD_UP + 1e-3 * count if waited else 1e-6 * answers
        assert figures["total_s"] == pytest.approx(sums["total_s"], abs=tolerance), phase
        tolerance = tolerance / count if waited else 1e-3
        assert figures["mean_s"] == pytest.approx(sums["total_s"] / count, abs=tolerance), phase
        tolerance = HELD_UP if waited else 1e-6
        assert figures["max_s"] == pytest.approx(sums["max_s"], abs=tolerance), phase


def _assert_within(product: Mapping[str, Mapping[str, float]], kind: str) -> None:
    """Device time is measured by another process, for each of the engine's executions and
    captures, and is a part of it."""
    whole = product.get(f"{kind}.execute") or product[f"{kind}.capture"]
    device = product[f"{kind}.device"]
    assert device["count"] == whole["count"], kind
    assert 0 < device["total_s"] < whole["total_s"], kind


def from_environment() -> Accumulator:
    """What a trainer's ``--observer support.accumulator:from_environment`` makes."""
    return Accumulator(Path(os.environ[FILE_VARIABLE]))
