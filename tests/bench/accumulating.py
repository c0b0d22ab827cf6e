"""What the observer is compared with: the obvious first form of one, that adds up where it is
called. Dicts under a lock, and nothing that anybody could ask from outside the process."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any


class AccumulatingObserver:
    """Counts, totals, maxima and batch sizes per model (and ``*``) and phase, queue waits
    included. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._series: dict[tuple[str, str], list[float]] = {}
        self._pending: dict[str, tuple[str, str, float]] = {}
        self._waiting: set[str] = set()
        self._states: dict[str, tuple[str, float]] = {}

    def begin(self, operation: Any) -> None:
        now = time.time()
        with self._lock:
            self._pending[operation.request_id] = (
                operation.model_id,
                str(operation.kind.value),
                now,
            )
            self._waiting.add(operation.request_id)

    def state(self, model: str | Sequence[str], state: str, **detail: Any) -> None:
        now = time.time()
        models = [model] if isinstance(model, str) else list(model)
        with self._lock:
            for model_id in models:
                self._states[model_id] = (state, now)

    def span(
        self,
        model: str | Sequence[str],
        name: str,
        lane: str,
        t0: float,
        t1: float | None = None,
        **attrs: Any,
    ) -> None:
        end = time.time() if t1 is None else t1
        models = [model] if isinstance(model, str) else list(model)
        request_ids = attrs.get("request_ids", ())
        part, _, kind = name.rpartition(":")
        phase = f"{kind}.{part or 'execute'}"
        batch = attrs.get("n") or len(request_ids) or len(models)
        with self._lock:
            for request_id in request_ids:
                if request_id in self._waiting:
                    self._waiting.discard(request_id)
                    owner, command, since = self._pending[request_id]
                    self._add([owner], f"{command}.queue_wait", t0 - since, 1)
            self._add(models, phase, end - t0, batch)

    def finish(self, operation: Any, state: object) -> None:
        with self._lock:
            self._pending.pop(operation.request_id, None)
            self._waiting.discard(operation.request_id)

    def _add(self, models: Sequence[str], phase: str, seconds: float, batch: int) -> None:
        if seconds < 0:
            return
        for model_id in (*models, "*"):
            series = self._series.setdefault((model_id, phase), [0, 0.0, 0.0, 0])
            series[0] += 1
            series[1] += seconds
            series[2] = max(series[2], seconds)
            series[3] += batch
