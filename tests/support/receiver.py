"""The far end of the hook's socket for tests that look at the bytes: it decodes and acknowledges.

Tests of the product as a whole use the real sidecar (`support.sidecar`).
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from lilo_engine_hook import wire

TIMEOUT = 20.0
"""Seconds until a test that waits gives up."""


class Receiver:
    """Listens at ``path`` on a thread of its own. Everything received is in the attributes;
    wait for it with `wait_for`."""

    def __init__(
        self, path: Path, *, acknowledge: bool = True, hang_up_after: int | None = None
    ) -> None:
        """The first connection is ended after ``hang_up_after`` bytes were read from it."""
        self.path = path
        self.acknowledge = acknowledge
        self.hellos: list[wire.Hello] = []
        self.batches: list[wire.Batch] = []
        self.seen: dict[str, int] = {}
        """Highest number by boot id."""
        self.ended = 0
        """Connections that ended."""
        self._changed = threading.Condition()
        self._connections: list[socket.socket] = []
        self._hang_up_after = hang_up_after
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def events(self) -> list[wire.Event]:
        """Every event, in order of arrival."""
        return [event for batch in self.batches for event in batch.events]

    @property
    def dropped(self) -> int:
        """The latest total the hook told."""
        return self.batches[-1].dropped if self.batches else 0

    @property
    def rejected(self) -> int:
        """The latest total the hook told."""
        return self.batches[-1].rejected if self.batches else 0

    def wait_for(self, condition: Callable[[], bool], timeout: float = TIMEOUT) -> None:
        """Return once ``condition`` holds; an AssertionError after ``timeout`` seconds."""
        with self._changed:
            assert self._changed.wait_for(condition, timeout), (
                f"not within {timeout} s; got {len(self.events)} events, the last of them "
                f"{self.events[-3:]}, hellos {self.hellos}"
            )

    def send(self, data: bytes) -> None:
        """Say something to the newest connection."""
        self._connections[-1].sendall(data)

    def hang_up(self) -> None:
        """Close every connection, and go on listening."""
        while self._connections:
            with contextlib.suppress(OSError):
                self._connections.pop().shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Stop listening, close everything, and remove the socket."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()
        self.path.unlink(missing_ok=True)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        frames = wire.FrameBuffer()
        boot = ""
        left, self._hang_up_after = self._hang_up_after, None
        with contextlib.suppress(OSError), connection:
            while data := connection.recv(65536 if left is None else min(left, 65536)):
                left = None if left is None else left - len(data)
                for payload in frames.feed(data):
                    message = wire.decode(payload)
                    with self._changed:
                        if isinstance(message, wire.Hello):
                            boot = message.boot_id
                            self.hellos.append(message)
                        elif isinstance(message, wire.Batch):
                            self._take(boot, message)
                        self._changed.notify_all()
                    if self.acknowledge:
                        connection.sendall(wire.encode(wire.Ack(self.seen.get(boot, 0))))
        with self._changed:
            self.ended += 1
            self._changed.notify_all()

    def _take(self, boot: str, batch: wire.Batch) -> None:
        old = max(0, self.seen.get(boot, 0) + 1 - batch.first_seq)
        self.batches.append(batch._replace(events=batch.events[old:]))
        last = batch.first_seq + len(batch.events) - 1
        self.seen[boot] = max(self.seen.get(boot, 0), last)


@contextlib.contextmanager
def receiver(
    path: Path, *, acknowledge: bool = True, hang_up_after: int | None = None
) -> Iterator[Receiver]:
    """A `Receiver` that is closed at the end."""
    far_end = Receiver(path, acknowledge=acknowledge, hang_up_after=hang_up_after)
    try:
        yield far_end
    finally:
        far_end.close()
