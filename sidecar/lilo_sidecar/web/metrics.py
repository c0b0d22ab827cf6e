"""`/metrics`: the figures for a Prometheus server, in the format that it asks for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from math import inf
from typing import Final, NamedTuple, TypeAlias

import trio
from prometheus_client import ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from ..core.lanes import GPU, MAX_LANES
from .answers import NEVER_STORED
from .metric_families import Moment, families

FRESH: Final = 1.0
"""Seconds for which an answer is given again. No scraper asks twice in one, and whoever does
nothing but ask keeps nobody else from theirs."""
Encoder: TypeAlias = Callable[[Collector], bytes]


class Metrics:
    """Answers scrapes. All figures of an answer are of one moment.

    The moment is taken on the daemon's one thread, and written down on another, one answer at a
    time: with the most models and phases that takes longer than producers should wait.
    """

    def __init__(self, look: Callable[[], Moment]) -> None:
        """``look`` takes the moment; what it returns is nobody else's."""
        self._look = look
        self._process = ProcessCollector(registry=None)
        """Of the sidecar: its memory, processor time, descriptors and start."""
        self._lanes = LanesSeen()
        self._one_at_a_time = trio.CapacityLimiter(1)
        self._written: dict[str, tuple[float, bytes]] = {}
        """By content type, of which there are two: when it was written (of time.monotonic), and the
        last answer."""

    async def answer(self, request: Request) -> Response:
        """A GET of `/metrics`, whatever its query and headers."""
        encode, content_type = encoder(request.headers.get("accept", ""))
        # A moment of many models is megabytes: whoever waits has none yet. What was written while
        # they waited is theirs, too, however many they are.
        async with self._one_at_a_time:
            written_at, text = self._written.get(content_type, (-inf, b""))
            if time.monotonic() - written_at >= FRESH:
                text = await self._write(encode)
                self._written[content_type] = time.monotonic(), text
        return Response(text, headers={**NEVER_STORED, "Content-Type": content_type})

    async def _write(self, encode: Encoder) -> bytes:
        moment = self._look()
        lanes = self._lanes.with_those_of(moment.health.lanes)

        def written() -> bytes:
            return encode(_Collected([*families(moment, lanes), *self._process.collect()]))

        return await trio.to_thread.run_sync(written)


class LanesSeen:
    """The lanes that were seen to work since the sidecar started, so that one is also told of
    while it is idle. MAX_LANES at most, as a trainer has."""

    def __init__(self) -> None:
        self._names = {GPU: None}

    def with_those_of(self, working: Iterable[str]) -> tuple[str, ...]:
        """All there are by now, these included."""
        for name in working:
            if len(self._names) < MAX_LANES:
                self._names[name] = None
        return tuple(self._names)


def encoder(accept: str) -> tuple[Encoder, str]:
    """Who writes what an Accept header asks for, and its content type: OpenMetrics 1.0.0, or the
    text format where it asks for nothing that is spoken here. No others: the library would repeat
    whatever version it is asked for, and each would be an answer to make and to keep."""
    try:
        _, content_type = choose_encoder(accept)
    except TypeError:  # a version that is no number
        content_type = ""
    openmetrics = content_type.startswith("application/openmetrics-text")
    return choose_encoder("application/openmetrics-text; version=1.0.0" if openmetrics else "")


class _Collected(NamedTuple):
    """Metrics as encoders want them."""

    metrics: Iterable[Metric]

    def collect(self) -> Iterable[Metric]:
        return self.metrics
