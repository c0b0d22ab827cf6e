"""The least that a step of the way can cost in Python, for reading the shortfalls by."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgpack

from bench.measure import Figure, compared, interleaved
from lilo_engine_hook import wire
from lilo_sidecar.core.critical_path import CriticalPath
from support.feed import hello

_DECODED = "decoding the same bytes with msgpack, nothing else"


class FirstCall:
    """Observer calls that take no more than a tuple, the clock and an append: no bound, no guard
    against anything that an engine may pass."""

    def __init__(self) -> None:
        self.items: deque[Any] = deque()

    def begin(self, operation: Any) -> None:
        self.items.append(
            (
                1,
                time.time(),
                operation.model_id,
                operation.request_id,
                operation.seq_id,
                operation.kind,
            )
        )

    def state(self, model: Any, state: str, **detail: Any) -> None:
        self.items.append((2, time.time(), model, state))

    def span(
        self,
        model: Any,
        name: str,
        lane: str,
        t0: float,
        t1: float | None = None,
        *,
        request_ids: Any = None,
        n: int | None = None,
    ) -> None:
        self.items.append((3, model, name, lane, t0, time.time(), request_ids, n))

    def finish(self, operation: Any, state: object) -> None:
        self.items.append((4, time.time(), operation.model_id, operation.request_id))

    def packed(self) -> bytes:
        """Everything so far, in one call of msgpack's C code."""
        items = list(self.items)
        self.items.clear()
        return bytes(msgpack.packb(items, default=_plain))


def _plain(value: Any) -> Any:
    return getattr(value, "value", value)


def reading_stages(frames: Sequence[bytes], events: int, rounds: int) -> list[Figure]:
    """How far the reading of an event comes at what pace, in this process: no socket, no journal,
    and less of it from row to row upwards."""
    payloads = [frame[4:] for frame in frames]
    stages: Mapping[str, Callable[[], None]] = {
        "decoded": lambda: _decode(payloads),
        "… and passed to an empty function each": lambda: _dispatch(payloads),
        "… checked and made into records": lambda: _check(payloads),
        "… checked and folded into the figures": lambda: _fold(payloads),
    }

    def pace(stage: Callable[[], None]) -> Callable[[], float]:
        def measured() -> float:
            began = time.process_time()
            stage()
            return events / (time.process_time() - began)

        return measured

    found = interleaved(rounds, {name: pace(stage) for name, stage in stages.items()})
    decoded = found.pop("decoded")
    return [
        compared(name, "events/s", samples, _DECODED, decoded) for name, samples in found.items()
    ]


def _decode(payloads: Sequence[bytes]) -> None:
    for payload in payloads:
        msgpack.unpackb(payload, use_list=False)


def _dispatch(payloads: Sequence[bytes]) -> None:
    functions = [_nothing] * 9
    for payload in payloads:
        for event in msgpack.unpackb(payload, use_list=False)[4]:
            functions[event[0]](*event)


def _nothing(*fields: object) -> None: ...


def _check(payloads: Sequence[bytes]) -> None:
    for payload in payloads:
        wire.decode(payload)


def _fold(payloads: Sequence[bytes]) -> None:
    core, who = CriticalPath(), hello()
    core.connect(who, 0.0)
    for payload in payloads:
        batch = wire.decode(payload)
        assert isinstance(batch, wire.Batch)
        core.apply(who.boot_id, batch, 0.0)
