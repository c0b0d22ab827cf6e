"""Events for a sidecar, packed beforehand, so that sending them costs next to nothing."""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from lilo_engine_hook import wire
from support.producer import Producer

EVENTS_PER_COMMAND = 4
"""begin, state, span, finish."""
_UNANSWERED = 100
"""Batches sent ahead of their acknowledgements; the socket holds the answers to a few hundred."""
_TICK = 100e-6
"""Seconds between two events, on the traffic's own clock."""


class Traffic:
    """An endless run of commands: of each model in turn, and of one kind after the other. Each
    waits for a tick, runs for one, and ends."""

    def __init__(self, models: int = 1, kinds: int = 1, prefix: str = "model") -> None:
        self._models = [f"{prefix}-{number}" for number in range(models)]
        self._kinds = [f"kind_{number}" for number in range(kinds)]
        self._turns = itertools.count()
        self._clock = itertools.count()
        self._began = time.time() - 3600

    @property
    def phases(self) -> int:
        """Of each model, once it has had every kind: a wait and an execution of each."""
        return 2 * len(self._kinds)

    def events(self, commands: int) -> Iterator[wire.Event]:
        """The next commands, four events each."""
        for turn in itertools.islice(self._turns, commands):
            model = self._models[turn % len(self._models)]
            kind = self._kinds[turn // len(self._models) % len(self._kinds)]
            request_id = f"{model}:{turn}"
            begun, started, ended, finished = (
                self._began + _TICK * next(self._clock) for _ in range(EVENTS_PER_COMMAND)
            )
            yield wire.Begin(begun, model, request_id, turn, kind, None)
            yield wire.State(started, (model,), f"executing:{kind}")
            yield wire.Span(
                (model,), kind, "gpu", started, ended, (request_id,), None, 1, True, None
            )
            yield wire.Finish(finished, model, request_id)


class Sender:
    """A producer's connection that sends what was packed."""

    def __init__(self, path: Path, boot: str = "bench") -> None:
        self._producer = Producer(path, boot)
        self._producer.greet()
        self._next_seq = 1
        self._unanswered = 0

    def pack(
        self, events: Iterator[wire.Event], frame: int = wire.MAX_EVENTS_PER_BATCH
    ) -> list[bytes]:
        """Frames of so many events, to be sent in this order."""
        frames = []
        packed = map(wire.encode_event, events)
        while batch := list(itertools.islice(packed, frame)):
            frames.append(wire.encode_batch(self._next_seq, 0, 0, wire.join(batch)))
            self._next_seq += len(batch)
        return frames

    def send(self, frames: Sequence[bytes]) -> None:
        """Send, and wait until all of it is applied."""
        self.post(frames)
        self.wait()

    def post(self, frames: Sequence[bytes]) -> None:
        """Send; waits only while the sidecar takes no more."""
        for frame in frames:
            self._producer.socket.sendall(frame)
            self._unanswered += 1
            if self._unanswered > _UNANSWERED:
                self._hear()

    def wait(self) -> None:
        """Until everything that was sent is applied."""
        while self._unanswered:
            self._hear()

    def _hear(self) -> None:
        self._producer.acknowledged()
        self._unanswered -= 1

    @property
    def socket(self) -> socket.socket:
        """The connection itself."""
        return self._producer.socket

    def close(self) -> None:
        self._producer.close()
