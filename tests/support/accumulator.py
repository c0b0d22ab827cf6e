"""An observer that adds up for itself what the engine tells it: the independent second opinion that
the product's figures are held against. On purpose as plain as can be: none of the
product's accounting is in it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lilo_engine_hook import Observers, TimingObserver
from lilo_local.engine.operations import payload_tokens

FILE_VARIABLE = "ACCUMULATOR_DIRECTORY"
"""Where each trainer's figures go, in a file named after its process id."""
_ON_DEVICE = (".execute", ".capture")


@dataclass
class Waiting:
    """Something that has not run yet. It began to wait between two looks at the clock, one before
    the product's own and one after it."""

    kind: str
    earliest: float
    latest: float | None = None


class Accumulator:
    """Counts, totals and maxima by model (and ``*``) and phase, and the least that totals and
    maxima may be. Told everything before the product is. Written when a model goes, and at
    `close`."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / f"{os.getpid()}.json"
        self.figures: dict[str, dict[str, dict[str, float]]] = {}
        self.waiting: dict[str, Waiting] = {}

    def register_model(self, model_id: str, spec: object = None) -> None:
        self.waiting[model_id] = Waiting("accept", time.time())

    def begin(self, operation: Any) -> None:
        waiting = Waiting(str(operation.kind.value), time.time())
        self.waiting.setdefault(operation.request_id, waiting)

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
                waited = self.waiting.pop(waiter)
                assert waited.latest is not None
                least, most = t0 - waited.latest, t0 - waited.earliest
                self._add([waiter.partition(":")[0]], f"{waited.kind}.queue_wait", least, most, 1)
        seconds = end - t0
        if ":" in name:
            part, _, kind = name.partition(":")
            self._add(models, f"{kind}.{part}", seconds, seconds, attrs["n"])
        else:
            self._add(models, f"{name}.execute", seconds, seconds, attrs["n"])

    def finish(self, operation: Any, state: object) -> None:
        self.waiting.pop(operation.request_id, None)

    def reuse(self, request_id: str) -> None: ...
    def set_activity(self, lane: str, operation: Any) -> None: ...
    def state(self, model: Any, state: str, **detail: Any) -> None: ...

    def forget_model(self, model_id: str) -> None:
        self.close()

    def close(self) -> None:
        self.file.write_text(json.dumps(self.figures))

    def _add(self, models: list[str], phase: str, least: float, most: float, batch: int) -> None:
        added = {"count": 1, "total_s": most, "least_total_s": least, "batch": batch}
        added |= {"max_s": most, "least_max_s": least}
        for model in [*models, "*"]:
            _merge(self.figures.setdefault(model, {}).setdefault(phase, {}), added)


class Latest:
    """Told everything after the product is."""

    def __init__(self, accumulator: Accumulator) -> None:
        self._waiting = accumulator.waiting

    def register_model(self, model_id: str, spec: object = None) -> None:
        self._look(model_id)

    def begin(self, operation: Any) -> None:
        self._look(operation.request_id)

    def span(self, *arguments: Any, **attrs: Any) -> None: ...
    def finish(self, operation: Any, state: object) -> None: ...
    def reuse(self, request_id: str) -> None: ...
    def set_activity(self, lane: str, operation: Any) -> None: ...
    def state(self, model: Any, state: str, **detail: Any) -> None: ...
    def forget_model(self, model_id: str) -> None: ...
    def close(self) -> None: ...

    def _look(self, waiter: str) -> None:
        if self._waiting[waiter].latest is None:
            self._waiting[waiter].latest = time.time()


def _merge(sums: dict[str, float], more: Mapping[str, float]) -> None:
    for name, value in more.items():
        if name in ("max_s", "least_max_s"):
            sums[name] = max(sums.get(name, 0.0), value)
        else:
            sums[name] = sums.get(name, 0) + value


def read_all(directory: Path) -> dict[str, dict[str, dict[str, float]]]:
    """What the accumulators of all trainers wrote: figures by model; ``*`` of all together."""
    figures: dict[str, dict[str, dict[str, float]]] = {"*": {}}
    for file in directory.glob("*.json"):
        for model, phases in json.loads(file.read_text()).items():
            for phase, sums in phases.items():
                _merge(figures.setdefault(model, {}).setdefault(phase, {}), sums)
    return figures


def assert_agree(
    product: Mapping[str, Mapping[str, float]],
    accumulated: Mapping[str, Mapping[str, float]],
    *,
    answers: int = 1,
) -> None:
    """The product's figures of a model are those of the accumulator: the same phases, count for
    count and batch for batch, and seconds to 1e-6 for each of the ``answers`` that were added up
    (each is rounded to 6 places). A wait begins when the product looks at the clock, which is
    between the accumulator's two looks, however far those are apart."""
    on_device = {phase.partition(".")[0] for phase in accumulated if phase.endswith(_ON_DEVICE)}
    measured = {f"{kind}.device" for kind in on_device}
    assert product.keys() == accumulated.keys() | measured
    for kind in on_device:
        _assert_within(product, kind)
    for phase, sums in accumulated.items():
        figures = product[phase]
        count, rounding = sums["count"], 1e-6 * answers
        assert figures["count"] == count, phase
        assert figures["mean_batch"] == pytest.approx(sums["batch"] / count, abs=1e-5), phase
        least, most = sums["least_total_s"] - rounding, sums["total_s"] + rounding
        assert least <= figures["total_s"] <= most, phase
        assert least / count - 1e-6 <= figures["mean_s"] <= most / count + 1e-6, phase
        assert sums["least_max_s"] - 1e-6 <= figures["max_s"] <= sums["max_s"] + 1e-6, phase


def _assert_within(product: Mapping[str, Mapping[str, float]], kind: str) -> None:
    """Device time is measured by another process, for each of the engine's executions and
    captures, and is a part of it."""
    whole = product.get(f"{kind}.execute") or product[f"{kind}.capture"]
    device = product[f"{kind}.device"]
    assert device["count"] == whole["count"], kind
    assert 0 < device["total_s"] < whole["total_s"], kind


def from_environment() -> Observers:
    """What a trainer's ``--observer support.accumulator:from_environment`` makes: an accumulator
    around the timing observer that the trainer would have by itself."""
    accumulator = Accumulator(Path(os.environ[FILE_VARIABLE]))
    return Observers(accumulator, TimingObserver(weigh=payload_tokens), Latest(accumulator))
