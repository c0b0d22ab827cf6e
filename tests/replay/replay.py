"""Plays a recorded trainer's activity through the real hook: `python replay.py FILE SOCKET`.

The record says what the trainer's one execution lane ran, when each client submitted its
training calls, and not whose an interval was. That follows from the order: calls run in the
order of submission, a client's `optim_step` after its own `forward_backward`, and its export
after its `optim_step`. When an export was submitted is not recorded, so none waits.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from lilo_engine_hook import TimingObserver, _producer

_EXPORT = "export_slot"
_SPAN_NAMES = {_EXPORT: "capture:save_weights_for_sampler"}
_EPOCH = 1_700_000_000.0
"""Recorded times count from the window's start; the hook's are Unix seconds."""


@dataclass(frozen=True)
class Operation:
    """A command as an engine knows it."""

    model_id: str
    seq_id: int
    kind: str
    payload: Any = None

    @property
    def request_id(self) -> str:
        return f"{self.model_id}:{self.seq_id}"


class Replay:
    """Feeds one record to an observer, in the order in which things happened."""

    def __init__(self, record: dict[str, Any], socket_path: str | Path) -> None:
        self._record = record
        self._now = 0.0
        self._steps: list[tuple[float, int, Callable[[], None]]] = []
        self.observer = TimingObserver(socket_path, clock=lambda: _EPOCH + self._now)

    def run(self) -> None:
        """Play all of it, and deliver it."""
        runs: dict[str, list[tuple[float, float]]] = {}
        for operation, start, end in self._record["lane"]:
            runs.setdefault(operation, []).append((start, end))
        for at, (client, submitted, _tokens) in enumerate(self._record["submitted"]):
            for offset, kind in enumerate(("forward_backward", "optim_step")):
                operation = Operation(client, 3 * at + offset, kind)
                self._at(submitted, 0, partial(self.observer.begin, operation))
                self._lane(operation, kind, *runs[kind][at])
            if at < len(runs[_EXPORT]):
                export = Operation(client, 3 * at + 2, "save_weights_for_sampler")
                self._lane(export, _EXPORT, *runs[_EXPORT][at])
        for t, _, act in sorted(self._steps, key=lambda step: step[:2]):
            self._now = t
            act()
        self.observer.close()

    def _at(self, t: float, order: int, act: Callable[[], None]) -> None:
        self._steps.append((t, order, act))

    def _lane(self, operation: Operation, recorded: str, start: float, end: float) -> None:
        name = _SPAN_NAMES.get(recorded, recorded)

        def begin() -> None:
            self.observer.state([operation.model_id], f"executing:{name}")

        def finish() -> None:
            self.observer.span(
                [operation.model_id], name, "gpu", _EPOCH + start, _EPOCH + end,
                request_ids=[operation.request_id], n=1, ok=True,
            )  # fmt: skip
            if recorded != _EXPORT:
                self.observer.finish(operation, "done")
            self.observer.state([operation.model_id], "idle")

        self._at(start, 2, begin)
        self._at(end, 1, finish)


if __name__ == "__main__":
    _producer.FLUSH_TIMEOUT = 30.0  # type: ignore[misc]  # a busy machine is no failure
    Replay(json.loads(Path(sys.argv[1]).read_text()), sys.argv[2]).run()
