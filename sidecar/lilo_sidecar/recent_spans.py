"""What the lanes did last, span by span: for whoever watches, and kept nowhere else. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from lilo_engine_hook import wire

MAX_SPANS: Final = 4096
"""Spans kept, over all lanes: at ten a second, the last seven minutes."""
MAX_TEXT: Final = 256 * 1024
"""Characters of their names and models: spans of a few models of ordinary ids have 40 each. With
fewer spans of more models the record reaches less far back, and says so."""


class RecentSpan(NamedTuple):
    """One span, as it was reported. Times are Unix seconds, on the trainer's clock."""

    heard: float
    """On the sidecar's clock."""
    lane: str
    t0: float
    t1: float
    name: str
    models: tuple[str, ...]


class RecentSpans:
    """The spans heard last, in the order they were heard. One thread."""

    def __init__(self, now: float) -> None:
        """Begins at ``now``, in Unix seconds: what was before is not known here."""
        self._spans: deque[RecentSpan] = deque()
        self._text = 0
        self._from = now

    def add(self, events: Sequence[wire.Event], now: float) -> None:
        """Take the spans among them; the oldest go where there are too many."""
        for event in events:
            if isinstance(event, wire.Span) and event.t1 >= event.t0:
                self._add(RecentSpan(now, event.lane, event.t0, event.t1, event.name, event.models))

    def _add(self, span: RecentSpan) -> None:
        self._spans.append(span)
        self._text += _text_of(span)
        while len(self._spans) > MAX_SPANS or self._text > MAX_TEXT:
            gone = self._spans.popleft()
            self._text -= _text_of(gone)
            self._from = max(self._from, gone.t1)

    def since(self, earliest: float, heard_after: float) -> list[RecentSpan]:
        """Those that ended later than ``earliest`` and were heard later than ``heard_after``, the
        one that began first comes first."""
        found: list[RecentSpan] = []
        for span in reversed(self._spans):
            if span.heard <= heard_after:
                break
            if span.t1 > earliest:
                found.append(span)
        found.sort(key=lambda span: span.t0)
        return found

    def known_from(self) -> float:
        """Unix seconds: what ended earlier may be missing, of whichever lane."""
        return self._from


def _text_of(span: RecentSpan) -> int:
    return len(span.lane) + len(span.name) + sum(map(len, span.models))
