"""Where readers stand: the last interval that each one received, to be acknowledged.

A sidecar keeps what it gave a reader until the reader's next request says, with ``ack``, that it
has arrived; otherwise it gives it again, together with what came after it. So what is not
acknowledged is never lost, and what is acknowledged never comes twice, if two things hold, for
which this module is here: an interval is acknowledged only once it is where it should be, and a
reader never has two requests under way, since their intervals would overlap.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from ._answer import TimingAnswer
from ._fetch import TimingRequest, fetch
from ._shown import shown
from ._statistics import counters
from .errors import SlowAnswerError

MAX_POSITIONS: Final = 8192
"""Readers of models that are remembered, about 3 MB; as many models as a sidecar knows. The one
that was not used for longest goes."""

_Key = tuple[str, str, str]
"""Base URL, model id, reader."""


class _Position:
    __slots__ = ("ack", "turn")

    def __init__(self, ack: str | None = None) -> None:
        self.ack = ack
        """The cursor of the last interval received; None before the first."""
        self.turn = threading.Lock()
        """Held from a request until its answer is where it should be."""


class Positions:
    """The positions of this process's readers. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._positions: OrderedDict[_Key, _Position] = OrderedDict()
        """The one that was not used for longest comes first."""

    @contextlib.contextmanager
    def reading(self, request: TimingRequest, reader: str) -> Iterator[TimingAnswer]:
        """Ask, and bring the answer to where it should be inside the ``with`` block. If the
        block ends well, the reader's next request acknowledges the interval; if it raises, the
        next answer covers it again. Without ``request.reset`` nothing moves.

        Blocks, while another request of the reader is under way, too, for up to the request's
        timeout. Raises an error of `errors`.
        """
        position = self._of((request.base_url, request.model_id, reader))
        if not position.turn.acquire(timeout=request.timeout):
            raise SlowAnswerError(
                f"reader {reader!r} of model {shown(request.model_id)} has waited "
                f"{request.timeout:g} s for its turn: another request of that reader is still "
                "under way; ask again, or pass a reader= of its own"
            )
        try:
            answer = fetch(request, reader, position.ack)
            yield _following(answer, position.ack)
            if request.reset and answer.interval is not None and answer.interval.cursor is not None:
                position.ack = answer.interval.cursor
        finally:
            position.turn.release()

    def inherited(self) -> Positions:
        """For a forked child: the same positions with locks of its own, since those here may be
        held for ever. Takes no lock: the child has one thread yet."""
        child = Positions()
        for key, held in self._positions.items():
            child._positions[key] = _Position(held.ack)
        return child

    def _of(self, key: _Key) -> _Position:
        with self._lock:
            # Each of these leaves the positions whole, whenever another thread forks.
            position = self._positions.setdefault(key, _Position())
            self._positions.move_to_end(key)
            evicted = len(self._positions) > MAX_POSITIONS
            if evicted:
                self._positions.popitem(last=False)
        if evicted:
            counters.count("positions_evicted")
            counters.tell(
                "positions",
                f"over {MAX_POSITIONS} models' intervals are being read; if the one that was not "
                "read for longest is read again, its last interval comes a second time",
            )
        return position


def _following(answer: TimingAnswer, ack: str | None) -> TimingAnswer:
    """The answer; incomplete if it begins elsewhere than where our last one ended. Then somebody
    else has read under the same name, or the sidecar lost its state."""
    interval = answer.interval
    if interval is None or ack is None or interval.begin == ack:
        return answer
    return replace(answer, interval=replace(interval, complete=False))
