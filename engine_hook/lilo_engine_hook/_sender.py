"""The hook's one thread: packs what the engine left in the queue and delivers it."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import Final

from . import _peer, wire
from ._outbox import MAX_BYTES, NO_TOTALS, Outbox, Totals
from ._queue import EventQueue

FLUSH_INTERVAL: Final = 0.04
"""Seconds between looks into the queue: a batch leaves within 50 ms with room to spare. The
thread looks by itself, so that an observer call never pays a system call to wake it."""
FIRST_RETRY: Final = 0.05
LAST_RETRY: Final = 1.0
"""Seconds between attempts to connect: doubling from the first to the last."""
REFUSED_RETRY: Final = 10.0
"""Seconds until the next attempt after the sidecar said no to the connection itself."""
_ABSENT_WARNING: Final = 30.0
"""Seconds without a sidecar after which the log says so, once."""
_READ: Final = 64 * 1024

_log = logging.getLogger("lilo_engine_hook")


class Sender:
    """Delivers one queue's events over one connection, as one process's number sequence.

    Every method but `stop` and `abandon` runs on the sender's own daemon thread. No fault of
    the sidecar, the socket or the events ends that thread before `stop` does.
    """

    def __init__(
        self,
        queue: EventQueue,
        path: str,
        hello: wire.Hello,
        resolve: Callable[[], int] | None = None,
    ) -> None:
        """``resolve`` is called before each look into the queue and may append to it; it returns
        how many events it is still waiting for."""
        self._queue = queue
        self._resolve = resolve
        self._unresolved = 0
        self._path = path
        self._hello = hello
        self._outbox = Outbox()
        self._socket: socket.socket | None = None
        self._poll = select.poll()
        self._frames = wire.FrameBuffer()
        self._sending = memoryview(b"")
        # On this connection:
        self._unanswered = 0  # frames that began to be sent; the sidecar answers each
        self._greeted = False  # the hello was answered
        self._told = NO_TOTALS
        self._told_of_gap = False
        self._retry = FIRST_RETRY
        self._retry_at = 0.0
        self._absent_since = time.monotonic()
        self._warned: set[str] = set()
        self._stop_at: float | None = None
        self.thread = threading.Thread(target=self._run, name="lilo-timing", daemon=True)

    def start(self) -> None:
        self.thread.start()

    def stop(self, timeout: float) -> None:
        """Any thread: deliver what is queued, for at most ``timeout`` seconds, then end."""
        self._stop_at = time.monotonic() + timeout

    def abandon(self) -> None:
        """In a forked child, where the thread does not exist: let go of the parent's connection."""
        if self._socket is not None:
            self._socket.close()

    @property
    def undelivered(self) -> int:
        """Events not acknowledged yet."""
        return self._outbox.events + len(self._queue.items) + self._unresolved

    # --- the loop -----------------------------------------------------------------------

    def _run(self) -> None:
        finished = stopping = False
        while not finished:
            stop_at = self._stop_at  # before the queue is looked into: its last events count
            tick = time.monotonic() + FLUSH_INTERVAL
            if stop_at is not None:
                tick = min(tick, stop_at)
                if not stopping:  # whoever ends has no time for the pauses of whoever goes on
                    stopping = True
                    self._retry, self._retry_at = FIRST_RETRY, 0.0
            try:
                self._pack()
                self._deliver(tick)
            except BaseException as error:  # noqa: BLE001 - the thread must outlive any fault
                self._warn("fault", f"a fault in delivery, retrying: {error!r}")
                self._disconnect()
                time.sleep(FLUSH_INTERVAL)
            if stop_at is not None:
                finished = self._delivered() or time.monotonic() >= stop_at
        self._disconnect()

    def _delivered(self) -> bool:
        """Whether the sidecar has said that it knows everything there is to know."""
        if self.undelivered or self._outbox.ends_in_gap:
            return False
        totals = self._totals()
        return totals == NO_TOTALS or (totals == self._told and not self._unanswered)

    def _totals(self) -> Totals:
        queue = self._queue
        return Totals(queue.dropped.value(), queue.rejected.value(), queue.unweighed)

    def _pack(self) -> None:
        if self._resolve is not None:
            self._unresolved = self._resolve()
        byte_limit = MAX_BYTES - self._outbox.bytes
        if byte_limit > 0:
            packed = self._queue.take(self._outbox.events, byte_limit)
            self._outbox.add(packed, self._totals())
        self._queue.explain()

    def _deliver(self, until: float) -> None:
        """Send and receive until the next look into the queue is due."""
        while True:
            if self._socket is None:
                self._connect()
            if self._socket is not None:
                self._send(self._socket)
            left = until - time.monotonic()
            if left <= 0:
                return
            if self._socket is None:
                time.sleep(left)
                return
            if self._waits_for_answers_alone():
                time.sleep(left)
                self._receive(self._socket)
                return
            wanted = select.POLLIN | (select.POLLOUT if self._sending else 0)
            self._poll.modify(self._socket, wanted)
            if self._poll.poll(left * 1000):
                self._receive(self._socket)

    def _waits_for_answers_alone(self) -> bool:
        """Nobody is in a hurry for these: to be woken by each would cost the trainer more than
        all the rest that is done for a batch. They are read together, at the next look."""
        if self._sending or self._stop_at is not None:
            return False
        return self._greeted and self._unanswered > 0

    # --- the connection -----------------------------------------------------------------

    def _connect(self) -> None:
        if time.monotonic() < self._retry_at:
            return
        try:
            # Assigned before it is connected: a fork at any moment must find it, to close it.
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.setblocking(False)
            self._socket.connect(self._path)
            objection = _peer.objection(self._socket, self._path)
        except OSError as error:
            self._disconnect()
            self._explain_absence(error)
            return
        if objection is not None:
            self._disconnect()
            self._warn("listener", objection)
            return
        self._poll.register(self._socket, select.POLLIN)
        self._begin(wire.encode(self._hello))

    def _disconnect(self, retry_after: float | None = None) -> None:
        if self._socket is not None:
            with contextlib.suppress(KeyError):  # it never came to be connected
                self._poll.unregister(self._socket)
            self._socket.close()
            self._socket = None
        self._frames = wire.FrameBuffer()
        self._sending = memoryview(b"")
        self._unanswered = 0
        self._greeted = False
        self._told = NO_TOTALS
        self._told_of_gap = False
        self._outbox.rewind()
        if retry_after is None:
            # Jitter: the observers of one machine do not all knock at the same moment.
            retry_after = self._retry * (0.5 + os.urandom(1)[0] / 512)
            self._retry = min(2 * self._retry, LAST_RETRY)
        self._retry_at = time.monotonic() + retry_after

    def _begin(self, frame: bytes) -> None:
        self._sending = memoryview(frame)
        self._unanswered += 1

    def _next_frame(self) -> bytes | None:
        """What is to be said now: events, or else what goes without any."""
        frame = self._outbox.next_unsent()
        if frame is not None:
            return frame
        totals = self._totals()
        if totals == self._told and (self._told_of_gap or not self._outbox.ends_in_gap):
            return None
        self._told = totals
        self._told_of_gap = True  # if there is one: the frame has the next number
        return self._outbox.totals(totals)

    def _send(self, connection: socket.socket) -> None:
        while True:
            if not self._sending:
                frame = self._next_frame()
                if frame is None:
                    return
                self._begin(frame)
            try:
                sent = connection.send(self._sending)
            except BlockingIOError:
                return
            except OSError:
                # What the sidecar said before it closed explains the failure.
                self._receive(connection)
                if self._socket is not None:
                    self._disconnect()
                return
            self._sending = self._sending[sent:]

    def _receive(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(_READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._absent_since = time.monotonic()
            self._disconnect()
            return
        try:
            for payload in self._frames.feed(data):
                self._hear(wire.decode(payload))
                if self._socket is None:
                    return
        except wire.ProtocolError as error:
            self._warn("answer", f"{self._path} does not speak the sidecar's protocol: {error}")
            self._disconnect(REFUSED_RETRY)

    def _hear(self, message: wire.Message) -> None:
        match message:
            case wire.Ack(seq):
                self._outbox.acknowledge(seq)
                self._retry = FIRST_RETRY
                self._greeted = True
                self._unanswered -= 1
            case wire.Refusal(code, reason) if not self._greeted:
                # About the hello, or the connection itself: no batch is to blame for it.
                self._warn(code, f"the sidecar at {self._path} refuses this trainer: {reason}")
                self._disconnect(REFUSED_RETRY)
            case wire.Refusal(code, reason):
                # It would only be refused again. The sidecar counts the gap that it leaves.
                lost = self._outbox.discard_first()
                self._warn(code, f"the sidecar refused a batch of {lost} events: {reason}")
                self._disconnect()
            case _:
                raise wire.ProtocolError("message", "only a trainer sends such a message")

    # --- what the log says --------------------------------------------------------------

    def _explain_absence(self, error: OSError) -> None:
        if isinstance(error, PermissionError):
            self._warn("permission", f"may not connect to the sidecar at {self._path}: {error}")
        elif error.errno in (errno.EMFILE, errno.ENFILE):
            self._warn(
                "descriptors",
                f"cannot connect to the sidecar at {self._path}: {error.strerror}. Events wait "
                "until a descriptor is free; if it stays like this, raise the limit (ulimit -n)",
            )
        elif time.monotonic() - self._absent_since > _ABSENT_WARNING:
            self._warn(
                "absent",
                f"no sidecar at {self._path} for {_ABSENT_WARNING:.0f} s ({error.strerror}); "
                "start `lilo-sidecar serve` with the same socket path. Events wait for it, "
                "and once there are too many, new ones are dropped and counted",
            )

    def _warn(self, kind: str, text: str) -> None:
        """Log each kind of trouble once."""
        if kind not in self._warned:
            self._warned.add(kind)
            _log.warning("lilo timing: %s", text)
