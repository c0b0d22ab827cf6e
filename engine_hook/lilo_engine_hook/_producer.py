"""What an observer and a device timer have in common: a queue, a sender, and a life across forks
and exits."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

from . import wire
from ._process import default_socket_path, is_secondary_rank, new_boot_id, process_started
from ._queue import MAX_EVENTS, EventQueue, Weigh
from ._sender import Sender

FLUSH_TIMEOUT: Final = 1.0
"""Seconds that `Producer.close` and interpreter exit may take to deliver what is left."""
MAX_PATH_BYTES: Final = 107
"""Bytes of a Unix socket's path: ``sun_path`` in unix(7) holds 108 with its closing zero."""

_log = logging.getLogger("lilo_engine_hook")
_open_producers: set[Producer] = set()


class Producer:
    """Owns one number sequence towards the sidecar. Subclasses append to ``_queue`` by the rule
    that `EventQueue` states."""

    def __init__(
        self,
        socket_path: str | os.PathLike[str] | None,
        role: str,
        *,
        weigh: Weigh | None = None,
        resolve: Callable[[], int] | None = None,
    ) -> None:
        """``resolve`` is called on the sender's thread before it looks into the queue; it
        returns how many events are still to come from what was reported."""
        self._path = ""
        self._role = role
        self._resolve = resolve
        self._boot_id = new_boot_id()
        self._root_boot_id: str | None = None
        self._weigh = weigh
        self._queue = EventQueue(weigh)
        self._sender: Sender | None = None
        self._starting = threading.Lock()
        self._startable = self._can_work(socket_path)
        if self._startable:
            self._start()

    def close(self) -> None:
        """Deliver what is queued, for at most `FLUSH_TIMEOUT` seconds, and stop. Blocks that
        long at most; may be called again. What is reported afterwards is dropped."""
        _close([self])

    def _admit(self) -> bool:
        """The queue has no room: whether the event may enter all the same, because this is a
        forked child's first. Counts the drop otherwise."""
        if self._startable and self._sender is None:
            if not self._starting.acquire(blocking=False):
                return True  # another thread, or the code a signal interrupted, is starting it
            try:
                self._start()
            finally:
                self._starting.release()
            if self._sender is not None:
                return True
        self._queue.dropped.add()
        return False

    def _can_work(self, socket_path: str | os.PathLike[str] | None) -> bool:
        if is_secondary_rank():
            _log.info("lilo timing: RANK is not 0, so rank 0 reports for this job")
            return False
        try:
            self._path = default_socket_path() if socket_path is None else os.fspath(socket_path)
            size = len(os.fsencode(self._path))
        except (TypeError, ValueError) as error:
            _log.warning("lilo timing is off: the socket path is none: %s", error)
            return False
        if size > MAX_PATH_BYTES:
            _log.warning(
                "lilo timing is off: the socket path has %d bytes and the system allows %d; "
                "choose a shorter LILO_TIMING_SOCKET: %s",
                size,
                MAX_PATH_BYTES,
                self._path,
            )
            return False
        return True

    def _start(self) -> None:
        hello = wire.Hello(
            self._boot_id, self._root_boot_id, os.getpid(), process_started(), self._role
        )
        sender = Sender(self._queue, self._path, hello, self._resolve)
        try:
            sender.start()
        except RuntimeError as error:  # no thread to be had: out of them, or shutting down
            self._startable = False
            _log.warning("lilo timing is off: its thread could not start: %s", error)
            return
        self._sender = sender
        self._queue.room = MAX_EVENTS
        _open_producers.add(self)
        # A process of multiprocessing ends without running atexit; this is its counterpart.
        multiprocessing_util = sys.modules.get("multiprocessing.util")
        if self._root_boot_id is not None and multiprocessing_util is not None:
            multiprocessing_util.Finalize(self, self.close, exitpriority=100)

    def _forked(self) -> None:
        """In the child of a fork: everything of the parent's connection and queue stays the
        parent's."""
        if self._sender is not None:
            self._sender.abandon()
        self._root_boot_id = self._root_boot_id or self._boot_id
        self._boot_id = new_boot_id()
        self._queue = EventQueue(self._weigh)
        self._sender = None
        self._starting = threading.Lock()  # a thread that is not here may have held the old one


def _close(producers: list[Producer]) -> None:
    senders = []
    for producer in producers:
        _open_producers.discard(producer)
        producer._startable = False
        producer._queue.closed = True
        producer._queue.room = 0
        if producer._sender is not None:
            producer._sender.stop(FLUSH_TIMEOUT)
            senders.append(producer._sender)
    deadline = time.monotonic() + FLUSH_TIMEOUT
    for sender in senders:
        sender.thread.join(max(0.0, deadline - time.monotonic()))
        if sender.undelivered:
            _log.warning("lilo timing: %d events were not delivered at exit", sender.undelivered)


def _close_all() -> None:
    _close(list(_open_producers))


def _forget_parent() -> None:
    # They stay open: a child that forks before it reports has children of its own.
    for producer in list(_open_producers):
        producer._forked()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_forget_parent)
