"""`/api/v1/overview`: what is going on and went on in the last minutes, for whoever watches all of
it. It takes nothing from any reader."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from math import inf
from typing import Final

import trio

from ..core.history import KEPT_FOR, SAMPLE_INTERVAL, History, Interval, latest
from ..core.recent_spans import RecentSpan
from ..core.timing import rounded_parts
from ..core.totals import ModelTotals, Totals
from ..state.recorder import Recorder
from .answers import json_text

PARTS: Final = ("mine_s", "shared_batch_s", "neighbors_s", "overhead_s", "persist_s", "client_s")
"""Of `StepSums`, in its order."""
FRESH: Final = 1.0
"""Seconds for which the models' totals are not added up anew, however many ask."""
_AT_ONCE: Final = 8
"""Pieces of an answer written between two pauses for others: about a millisecond."""
_SPANS_OF_PIECE: Final = 128
_PLACES: Final = 6


class Overview:
    """Watches the totals and tells of them. Everything is on the daemon's one thread."""

    def __init__(
        self,
        core: Recorder,
        clock: Callable[[], float],
        version: str,
        room: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint,
    ) -> None:
        """``room`` returns when there is some for another answer."""
        self._core = core
        self._room = room
        self._clock = clock
        self._version = version
        self._started = clock()
        self._history = History()
        self._totals = core.totals(ahead=True)
        self._totalled = self._started
        self._one_at_a_time = trio.Lock()
        self._whole, self._answered = b"", -inf
        """The last whole answer, and when it was made."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the last minutes' intervals, until cancelled."""
        task_status.started()
        while True:
            self.sample()
            await trio.sleep(SAMPLE_INTERVAL)

    def sample(self) -> None:
        """Look at the totals for the history's sake."""
        now = self._clock()
        self._history.sample(self._latest_totals(now).models, now)

    async def answer(self, heard_after: float | None = None) -> bytes:
        """The answer as JSON, with all that is kept, or with those spans and intervals only that
        came after an earlier answer's ``now``. Others get their turns while it is written: at the
        bounds it has some hundred kB, or megabytes where ids are long."""
        async with self._one_at_a_time:
            await self._room()  # others were answered while this one waited
            now = self._clock()
            if heard_after is not None:
                return await self._answer(now, heard_after)
            # With all that is kept: one for all who ask within a moment.
            if not 0.0 <= now - self._answered < FRESH:
                self._whole = await self._answer(now, -inf)
                self._answered = now
            return self._whole

    async def _answer(self, now: float, after: float) -> bytes:
        pieces = []
        for piece in self._written(now, after):
            pieces.append(piece)
            if len(pieces) % _AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
        return b"".join(pieces)

    def _written(self, now: float, after: float) -> Iterator[bytes]:
        """The pieces of the answer. It is as of now: what comes between is in the next one."""
        totals = self._latest_totals(now)
        shown = latest(totals.models)
        together = self._history.together() if after == -inf else 1
        spans = self._core.spans.since(now - KEPT_FOR, after)
        lanes = _by_lane(spans)
        head = self._head(totals, lanes, now)
        yield json_text({**head, "models_left_out": len(totals.models) - len(shown)})[:-1]
        yield b',"spans":'
        yield from _object((lane, _rows(of_lane)) for lane, of_lane in sorted(lanes.items()))
        yield b',"models":'
        yield from _array(
            json_text(_model_json(model, self._intervals(model, together, after, now)))
            for model in shown
        )
        yield b"}"

    def _intervals(
        self, model: ModelTotals, together: int, after: float, now: float
    ) -> list[Interval]:
        return self._history.intervals(model.model_id, together, after=after, until=now)

    def _latest_totals(self, now: float) -> Totals:
        if not 0.0 <= now - self._totalled < FRESH:
            self._totals = self._core.totals(ahead=True)
            self._totalled = now
        return self._totals

    def _head(
        self, totals: Totals, lanes: dict[str, list[RecentSpan]], now: float
    ) -> dict[str, object]:
        """All but the spans and the models."""
        health = self._core.health()
        known_from = round(max(self._core.spans.known_from(), now - KEPT_FOR), _PLACES)
        return {
            "now": round(now, _PLACES),
            "version": self._version,
            "uptime_s": round(max(0.0, now - self._started), _PLACES),
            **health.to_json(now),
            "spans_from": dict.fromkeys(sorted({*lanes, *health.lanes}), known_from),
            "delivery": totals.delivery._asdict(),
            "journal": self._core.status._asdict(),
            "faults": health.faults,
        }


def _by_lane(spans: Sequence[RecentSpan]) -> dict[str, list[RecentSpan]]:
    lanes: dict[str, list[RecentSpan]] = {}
    for span in spans:
        lanes.setdefault(span.lane, []).append(span)
    return lanes


def _rows(spans: Sequence[RecentSpan]) -> Iterator[bytes]:
    for start in range(0, len(spans), _SPANS_OF_PIECE):
        rows = [
            (round(span.t0, _PLACES), round(span.t1, _PLACES), span.name, span.models)
            for span in spans[start : start + _SPANS_OF_PIECE]
        ]
        yield json_text(rows)[1:-1]


def _model_json(model: ModelTotals, intervals: list[Interval]) -> dict[str, object]:
    since, until = round(model.since, _PLACES), round(model.until, _PLACES)
    parts = rounded_parts(until - since, model.sums.to_tuple())
    return {
        "model_id": model.model_id,
        "queued": model.queued,
        "running": model.running,
        "executions": model.executions,
        "commands": model.commands,
        "since": since,
        "until": until,
        "step": dict(zip(PARTS, parts, strict=True)),
        "intervals": intervals,
    }


# --- JSON in pieces -------------------------------------------------------------------------


def _array(items: Iterator[bytes]) -> Iterator[bytes]:
    """Of items, or of several with commas between them at once."""
    before = b"["
    for item in items:
        yield before + item
        before = b","
    yield b"[]" if before == b"[" else b"]"


def _object(arrays: Iterator[tuple[str, Iterator[bytes]]]) -> Iterator[bytes]:
    before = b"{"
    for name, items in arrays:
        yield before + json_text(name) + b":"
        yield from _array(items)
        before = b","
    yield b"{}" if before == b"{" else b"}"
