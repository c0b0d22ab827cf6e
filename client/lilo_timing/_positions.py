"""Where readers stand: the last interval that each one received, to be acknowledged.

A sidecar keeps what it gave a reader until the reader's next request says, with ``ack``, that it
has arrived; otherwise it gives it again, together with what came after it. So what is not
acknowledged is never lost, and what is acknowledged never comes twice, if two things hold, for
which this module is here: an interval is acknowledged only once it is where it should be, and a
reader never has two requests under way, since their intervals would overlap.

What is behind a URL may change: a control plane moves a model to another trainer, whose sidecar
has marks of its own, and perhaps back. A cursor names the state of the sidecar that it belongs to,
its epoch. So a reader's cursors are remembered by epoch, for the latest few; the request carries
the one that was received last from that URL, and where the answer turns out to be of another epoch
that is remembered, it is asked for again with the cursor of that one.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from ._answer import TimingAnswer
from ._fetch import fetch
from ._request import TimingRequest
from ._shown import shown
from ._statistics import counters
from .errors import SlowAnswerError, UnknownModelError

MAX_POSITIONS: Final = 8192
"""Readers of models that are remembered, about 7 MB (15 if all models move about); as many models
as a sidecar knows. The one that was not used for longest goes."""
MAX_STATES: Final = 8
"""Sidecars' states that are remembered of a reader, once for each URL: more than a model has
trainers to move between. The one that was not heard of for longest goes."""

_Key = tuple[str, str]
"""Model id and reader. No URL: one sidecar may be asked under several, and epochs tell sidecars
apart."""


class _Position:
    __slots__ = ("doubtful", "received", "turn")

    def __init__(
        self,
        received: tuple[tuple[str, str], ...] = (),
        doubtful: frozenset[str] = frozenset(),
    ) -> None:
        self.received = received
        """The base URL and the cursor of the intervals received, the latest first; the last one
        of each URL and epoch."""
        self.doubtful = doubtful
        """Epochs of states that may have ended an interval for a request that was given up, and
        did not carry their cursor."""
        self.turn = threading.Lock()
        """Held from a request until its answer is where it should be."""

    def last(self, base_url: str) -> str | None:
        """The cursor to acknowledge there, as far as is known before the answer."""
        for url, cursor in self.received:
            if url == base_url:
                return self.of_epoch(cursor)
        return None

    def of_epoch(self, other: str) -> str | None:
        """The last cursor of the state that another one is of; None of one that is not known."""
        for _, cursor in self.received:
            if _epoch(cursor) == _epoch(other):
                return cursor
        return None

    def receive(self, base_url: str, cursor: str) -> None:
        """An interval is where it should be."""
        others = [
            (url, known)
            for url, known in self.received
            if url != base_url or _epoch(known) != _epoch(cursor)
        ]
        self.received = ((base_url, cursor), *others[: MAX_STATES - 1])
        self.doubtful &= self.epochs()

    def epochs(self) -> frozenset[str]:
        """Of the states that are remembered."""
        return frozenset(_epoch(cursor) for _, cursor in self.received)


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
        position = self._of((request.model_id, reader))
        if not position.turn.acquire(timeout=request.timeout):
            raise SlowAnswerError(
                f"reader {reader!r} of model {shown(request.model_id)} has waited "
                f"{request.timeout:g} s for its turn: another request of that reader is still "
                "under way; ask again, or pass a reader= of its own"
            )
        try:
            answer = _ask(request, reader, position)
            yield answer
            if request.reset and answer.interval is not None and answer.interval.cursor is not None:
                position.receive(request.base_url, answer.interval.cursor)
        finally:
            position.turn.release()

    def inherited(self) -> Positions:
        """For a forked child: the same positions with locks of its own, since those here may be
        held for ever. Takes no lock: the child has one thread yet."""
        child = Positions()
        for key, held in self._positions.items():
            child._positions[key] = _Position(held.received, held.doubtful)
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


def _ask(request: TimingRequest, reader: str, position: _Position) -> TimingAnswer:
    """The reader's interval, from where it received the last one on."""
    deadline = time.monotonic() + request.timeout
    last = ack = position.last(request.base_url)
    if position.doubtful:
        # A sidecar keeps the ends of the two latest intervals that it gave: of the one received,
        # and of one given up. A second one without the right cursor would push the former out.
        looked = fetch(request._replace(reset=False), reader, ack, deadline)
        ack = _known(position, looked, ack)
    resolved = position.doubtful
    position.doubtful |= position.epochs() - {_epoch(ack or "")}
    answer = fetch(request, reader, ack, deadline)
    known = _known(position, answer, ack)
    if known != ack:
        answer = fetch(request, reader, known, deadline)
    position.doubtful = resolved - {_epoch(known or "")}
    if answer.unknown:
        raise UnknownModelError(
            f"the sidecar knows no model {shown(request.model_id)}; is the model_id right? It is "
            "known from its registration with the trainer on, and for 10 minutes after its end"
        )
    return _following(answer, last or known)


def _known(position: _Position, answer: TimingAnswer, ack: str | None) -> str | None:
    """What is to be acknowledged to the state that gave that answer; ``ack`` where that is not
    known."""
    if answer.interval is None:
        return ack
    return position.of_epoch(answer.interval.begin) or ack


def _epoch(cursor: str) -> str:
    return cursor.partition(".")[0]


def _following(answer: TimingAnswer, ack: str | None) -> TimingAnswer:
    """The answer; incomplete if it begins elsewhere than where our last one ended. Then somebody
    else has read under the same name, or the sidecar lost its state."""
    interval = answer.interval
    if interval is None or ack is None or interval.begin == ack:
        return answer
    return replace(answer, interval=replace(interval, complete=False))
