"""A producer that speaks to a sidecar byte by byte, for tests of what the hook never sends."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from lilo_engine_hook import wire
from support.feed import span

TIMEOUT = 20.0
"""Seconds until a test that waits for an answer gives up."""


class Producer:
    """One connection to a sidecar."""

    def __init__(self, path: Path, boot: str = "boot") -> None:
        self.boot = boot
        self.sent = 0
        self._frames = wire.FrameBuffer()
        self._heard: list[wire.Message] = []
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(TIMEOUT)
        self.socket.connect(os.fspath(path))

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self.socket.close()

    def greet(self, role: str = "engine") -> int:
        """Say hello; the number acknowledged."""
        self.socket.sendall(hello_frame(self.boot, role))
        return self.acknowledged()

    def post(self, *events: wire.Event) -> None:
        """Send a batch without waiting for its acknowledgement."""
        packed = [wire.encode_event(event) for event in events]
        self.socket.sendall(wire.encode_batch(self.sent + 1, 0, 0, wire.join(packed)))
        self.sent += len(events)

    def send(self, *events: wire.Event) -> int:
        """Send a batch; the number acknowledged."""
        self.post(*events)
        return self.acknowledged()

    def work(self, models: Sequence[str] = ("m",), seconds: float = 1.0) -> int:
        """Report one execution; the number acknowledged."""
        return self.send(span(models, 0.0, seconds))

    def acknowledged(self) -> int:
        """The number in the next answer, which must be an acknowledgement."""
        message = self.hear()
        assert isinstance(message, wire.Ack), message
        return message.seq

    def refused(self) -> str:
        """The code in the next answers, which must be a refusal and the end."""
        message = self.hear()
        while isinstance(message, wire.Ack):
            message = self.hear()
        assert isinstance(message, wire.Refusal), message
        assert self.hear() is None
        return message.code

    def hear(self) -> wire.Message | None:
        """The next answer; None at the end of the connection."""
        while not self._heard:
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:  # closed with something of ours unread
                data = b""
            if not data:
                return None
            self._heard += [wire.decode(payload) for payload in self._frames.feed(data)]
        return self._heard.pop(0)


def hello_frame(boot: str = "boot", role: str = "engine") -> bytes:
    """A hello, as it is sent."""
    return wire.encode(wire.Hello(boot, None, os.getpid(), 0.0, role))
