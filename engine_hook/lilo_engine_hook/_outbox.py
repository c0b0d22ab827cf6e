"""What waits for the sidecar: packed batches, kept until they are acknowledged. No I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from . import wire

MAX_BYTES: Final = 16 * 1024 * 1024
"""Packed bytes held for a sidecar that does not take them."""


class Totals(NamedTuple):
    """What was counted since the boot and is no event."""

    dropped: int
    rejected: int
    unweighed: int


NO_TOTALS: Final = Totals(0, 0, 0)


class Frame(NamedTuple):
    """One packed batch: its last event's number, how many events, and the bytes to send."""

    last_seq: int
    events: int
    data: bytes


class Outbox:
    """Numbers events, groups them into frames, and keeps the frames until acknowledged."""

    def __init__(self) -> None:
        self._frames: deque[Frame] = deque()
        self._sent = 0  # how many of the frames were sent on this connection
        self._next_seq = 1
        self._acknowledged = 0  # what the sidecar said last; one that lost its state says less
        self.events = 0
        """Events held."""
        self.bytes = 0
        """Bytes held."""

    def add(self, batches: Sequence[wire.Packed], totals: Totals) -> None:
        """Number packed events, and make frames of them that carry the producer's totals. Should
        that fail (for want of memory), those that are in no frame have their numbers all the
        same: they are a gap, and the sidecar counts gaps."""
        next_seq = self._next_seq + sum([batch.events for batch in batches])
        try:
            for batch in batches:
                data = _encode(self._next_seq, totals, batch)
                self._next_seq += batch.events
                self._frames.append(Frame(self._next_seq - 1, batch.events, data))
                self.events += batch.events
                self.bytes += len(data)
        finally:
            self._next_seq = next_seq

    @property
    def ends_in_gap(self) -> bool:
        """Whether the latest numbers are of events that are not held any more and never reached
        the sidecar: no event to come would show it the gap. A sidecar without the state of its
        predecessor sees everything before as one."""
        return not self._frames and self._acknowledged < self._next_seq - 1

    def totals(self, totals: Totals) -> bytes:
        """A frame without events, for what changed while nothing else happened: totals, and the
        next number, by which the sidecar sees a gap before it."""
        return _encode(self._next_seq, totals, wire.join(()))

    def next_unsent(self) -> bytes | None:
        """The next frame of this connection, counted as sent."""
        if self._sent == len(self._frames):
            return None
        frame = self._frames[self._sent]
        self._sent += 1
        return frame.data

    def rewind(self) -> None:
        """A new connection: everything unacknowledged is to be sent again."""
        self._sent = 0

    def acknowledge(self, seq: int) -> None:
        """Let go of every frame whose events are all numbered up to ``seq``. Raises
        `wire.ProtocolError` for a number that no event has: a sidecar that expects others would
        pass over ours as if it had them."""
        if seq >= self._next_seq:
            raise wire.ProtocolError(
                "ack", f"it acknowledges event {seq}, and there are {self._next_seq - 1}"
            )
        self._acknowledged = seq
        while self._frames and self._frames[0].last_seq <= seq:
            self._discard()

    def discard_first(self) -> int:
        """Let go of the oldest frame unacknowledged; the number of events lost with it. Their
        numbers stay taken, so the sidecar counts them as a gap, unless it has them after all."""
        return self._discard() if self._frames else 0

    def _discard(self) -> int:
        frame = self._frames.popleft()
        self._sent = max(0, self._sent - 1)
        self.events -= frame.events
        self.bytes -= len(frame.data)
        return frame.events


def _encode(first_seq: int, totals: Totals, batch: wire.Packed) -> bytes:
    return wire.encode_batch(first_seq, totals.dropped, totals.rejected, batch, totals.unweighed)
