"""What the lanes did last, span by span: for whoever watches, and kept nowhere else. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

from lilo_engine_hook import wire

MAX_SPANS: Final = 4096
"""Spans kept, over all lanes: at ten a second, the last seven minutes."""
MAX_TEXT: Final = 256 * 1024
"""Characters of their models' ids: spans of three models of ordinary ids have 60 each. With spans
of more, there are fewer; the record reaches less far back, and says so."""


class RecentSpan(NamedTuple):
    """One span, as it was reported. Times are Unix seconds, on the trainer's clock."""

    heard: float
    """On the sidecar's clock."""
    lane: str
    t0: float
    t1: float
    name: str
    models: tuple[str, ...]
    text: int
    """Characters of the models' ids."""


_Row: TypeAlias = tuple[float, str, float, float, str, tuple[str, ...], int]
"""The fields of a `RecentSpan`, which takes longer to make: many are, and few are looked at."""
_T1: Final = 3
_TEXT: Final = 6


class RecentSpans:
    """The spans heard last, in the order they were heard. One thread."""

    def __init__(self, now: float) -> None:
        """Begins at ``now``, in Unix seconds: what was before is not known here."""
        self._spans: deque[_Row] = deque()
        self._text = 0
        self._from = now

    def add(self, events: Sequence[wire.Event], now: float) -> None:
        """Take the spans among them; the oldest go where there are too many. This is done for
        every event that there is, whether or not somebody watches."""
        found = [
            (now, event.lane, event.t0, event.t1, event.name, event.models, _text_of(event.models))
            for event in events
            if type(event) is wire.Span and event.t1 >= event.t0
        ]
        spans = self._spans
        spans.extend(found)
        self._text += sum(map(itemgetter(_TEXT), found))
        while len(spans) > MAX_SPANS or self._text > MAX_TEXT:
            gone = spans.popleft()
            self._text -= gone[_TEXT]
            self._from = max(self._from, gone[_T1])

    def since(self, earliest: float, heard_after: float) -> list[RecentSpan]:
        """Those that ended later than ``earliest`` and were heard later than ``heard_after``, the
        one that began first comes first."""
        found: list[RecentSpan] = []
        for row in reversed(self._spans):
            span = RecentSpan._make(row)
            if span.heard <= heard_after:
                break
            if span.t1 > earliest:
                found.append(span)
        found.sort(key=lambda span: span.t0)
        return found

    def known_from(self) -> float:
        """Unix seconds: what ended earlier may be missing, of whichever lane."""
        return self._from


def _text_of(models: tuple[str, ...]) -> int:
    return len(models[0]) if len(models) == 1 else sum(map(len, models))
