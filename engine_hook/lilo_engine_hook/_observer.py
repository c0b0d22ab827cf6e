"""The observer a trainer's engine calls, and its life across forks and exits."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any, Final, Protocol

from . import wire
from ._process import default_socket_path, is_secondary_rank, new_boot_id, process_started
from ._queue import MAX_EVENTS, EventQueue
from ._sender import Sender

FLUSH_TIMEOUT: Final = 1.0
"""Seconds that `TimingObserver.close` and interpreter exit may take to deliver what is left."""
MAX_PATH_BYTES: Final = 107
"""Bytes of a Unix socket's path: ``sun_path`` in unix(7) holds 108 with its closing zero."""

_log = logging.getLogger("lilo_engine_hook")
_now = time.time
_open_observers: set[TimingObserver] = set()


class Operation(Protocol):
    """A command as the engine knows it. ``kind`` is a string or an enum with a string value."""

    @property
    def request_id(self) -> str: ...
    @property
    def model_id(self) -> str: ...
    @property
    def seq_id(self) -> int: ...
    @property
    def kind(self) -> Any: ...


class TimingObserver:
    """Reports what the engine does to the timing sidecar.

    Contract of every method but `close`: any thread; never blocks, does no I/O, takes no lock
    and makes no system call but the clock; never raises for what it is passed. It appends one
    tuple to a bounded queue, and a daemon thread does the rest. At 65,536 events or 16 MiB that
    the sidecar has not acknowledged, further events are dropped and counted; calls that make no
    valid event are counted as rejected. Both counts reach the sidecar and every timing answer.

    No token, weight, prompt or path is ever read from an operation: only its ids and its kind.
    Times are Unix seconds of this process's clock.

    After ``os.fork()`` the child's observer is inert until it is used, and then speaks for itself
    over a connection of its own. In a distributed job only rank 0 reports (``RANK`` in the
    environment): ranks run the same commands, and each would be counted again.
    """

    def __init__(self, socket_path: str | os.PathLike[str] | None = None) -> None:
        """``socket_path`` defaults to ``LILO_TIMING_SOCKET``, then to
        ``/tmp/lilo-timing-<uid>/timing.sock``. Never raises: where it cannot work it says so
        in the log, once, and drops what it is told."""
        self._path = os.fspath(socket_path) if socket_path is not None else default_socket_path()
        self._boot_id = new_boot_id()
        self._root_boot_id: str | None = None
        self._queue = EventQueue()
        self._sender: Sender | None = None
        self._starting = threading.Lock()
        self._startable = self._can_work()
        if self._startable:
            self._start()

    # --- what the engine calls ------------------------------------------------------------
    #
    # Each method repeats the two lines around its append: a helper in between would cost a
    # quarter of the call.

    def register_model(self, model_id: str, spec: object = None) -> None:
        """A model was asked for. Its wait until the ``accept`` span starts here."""
        queue = self._queue
        if len(queue.items) < queue.room or self._admit():
            queue.items.append((wire.Register, _now(), model_id))

    def forget_model(self, model_id: str) -> None:
        """A model is gone; the sidecar lets go of all it holds for it."""
        queue = self._queue
        if len(queue.items) < queue.room or self._admit():
            queue.items.append((wire.Forget, _now(), model_id))

    def begin(self, operation: Operation) -> None:
        """A command was submitted: its queue wait starts now."""
        queue = self._queue
        try:
            if len(queue.items) < queue.room or self._admit():
                queue.items.append(
                    (
                        wire.Begin,
                        _now(),
                        operation.model_id,
                        operation.request_id,
                        operation.seq_id,
                        operation.kind,
                        None,
                    )
                )
        except Exception as error:  # noqa: BLE001 - an engine's attribute may run any code
            queue.reject(error)

    def reuse(self, request_id: str) -> None:
        """A submission was repeated and joins the command that is there: nothing to tell, since
        a command's wait is counted from its first submission."""
        if not isinstance(request_id, str):
            self._queue.reject("reuse() takes a request id, a string")

    def finish(self, operation: Operation, state: object) -> None:
        """A command is over; ``state`` is the engine's word for how it ended."""
        queue = self._queue
        try:
            if len(queue.items) < queue.room or self._admit():
                queue.items.append(
                    (wire.Finish, _now(), operation.model_id, operation.request_id, state)
                )
        except Exception as error:  # noqa: BLE001
            queue.reject(error)

    def set_activity(self, lane: str, operation: Operation | None) -> None:
        """A lane took up ``operation``, or put its work down (None)."""
        queue = self._queue
        try:
            if len(queue.items) < queue.room or self._admit():
                if operation is None:
                    item: tuple[object, ...] = (wire.Activity, _now(), lane, None, None, None)
                else:
                    item = (
                        wire.Activity,
                        _now(),
                        lane,
                        operation.model_id,
                        operation.request_id,
                        operation.kind,
                    )
                queue.items.append(item)
        except Exception as error:  # noqa: BLE001
            queue.reject(error)

    def state(self, model: str | Iterable[str], state: str, **detail: object) -> None:
        """``executing:<name>`` when a span starts, ``idle`` when the gpu lane drains."""
        queue = self._queue
        try:
            if len(queue.items) < queue.room or self._admit():
                # Idle speaks of every model there is: that is the lane, not a list.
                models = None if state == "idle" else _models(model)
                queue.items.append((wire.State, _now(), models, state))
        except Exception as error:  # noqa: BLE001
            queue.reject(error)

    def span(
        self,
        model: str | Iterable[str],
        name: str,
        lane: str,
        t0: float,
        t1: float | None = None,
        *,
        request_ids: Iterable[str] | None = None,
        seq_ids: Iterable[int] | None = None,
        n: int | None = None,
        ok: bool | None = None,
        tokens: Iterable[float] | None = None,
        **others: object,
    ) -> None:
        """A lane worked on ``name`` (``<kind>``, ``capture:<kind>`` or ``persist:<kind>``) for
        one model or several, from ``t0`` to ``t1`` (Unix seconds; None is now). ``request_ids``
        names the commands in it, ``n`` counts them, ``ok`` is False after a failure, ``tokens``
        weighs them, one number for each. Other attributes stay here."""
        queue = self._queue
        try:
            if len(queue.items) < queue.room or self._admit():
                queue.items.append(
                    (
                        wire.Span,
                        _models(model),
                        name,
                        lane,
                        t0,
                        _now() if t1 is None else t1,
                        None if request_ids is None else _copy(request_ids),
                        None if seq_ids is None else _copy(seq_ids),
                        n,
                        ok,
                        None if tokens is None else _copy(tokens),
                    )
                )
        except Exception as error:  # noqa: BLE001
            queue.reject(error)

    def backend_ready(self) -> None:
        """The GPU backend answers: sets the gauge ``trainer.backend_ready_s``."""
        self._milestone("backend_ready")

    def serving_ready(self) -> None:
        """The trainer takes requests: sets the gauge ``trainer.serving_ready_s``."""
        self._milestone("serving_ready")

    def close(self) -> None:
        """Deliver what is queued, for at most `FLUSH_TIMEOUT` seconds, and stop. Blocks that
        long at most; may be called again. What is reported afterwards is dropped."""
        _close([self])

    # --- off the fast path ------------------------------------------------------------------

    def _milestone(self, name: str) -> None:
        queue = self._queue
        if len(queue.items) < queue.room or self._admit():
            queue.items.append((wire.Gauge, _now(), name))

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

    def _can_work(self) -> bool:
        if is_secondary_rank():
            _log.info("lilo timing: RANK is not 0, so rank 0 reports for this job")
            return False
        size = len(os.fsencode(self._path))
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
            self._boot_id, self._root_boot_id, os.getpid(), process_started(), wire.Role.ENGINE
        )
        sender = Sender(self._queue, self._path, hello)
        try:
            sender.start()
        except RuntimeError as error:  # no thread to be had: out of them, or shutting down
            self._startable = False
            _log.warning("lilo timing is off: its thread could not start: %s", error)
            return
        self._sender = sender
        self._queue.room = MAX_EVENTS
        _open_observers.add(self)
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
        self._queue = EventQueue()
        self._sender = None
        self._starting = threading.Lock()  # a thread that is not here may have held the old one


def _models(model: object) -> tuple[object, ...]:
    return (model,) if isinstance(model, str) else _copy(model)


def _copy(values: object) -> tuple[object, ...]:
    """What the engine passed, as it is now: it may go on changing its own list."""
    if not isinstance(values, (list, tuple)):
        raise TypeError(f"expected a list or a tuple, not {type(values).__name__}")
    if len(values) > wire.MAX_COMMANDS_PER_SPAN:
        raise ValueError(f"{len(values)} items; at most {wire.MAX_COMMANDS_PER_SPAN} are allowed")
    return tuple(values)


def _close(observers: list[TimingObserver]) -> None:
    senders = []
    for observer in observers:
        _open_observers.discard(observer)
        observer._startable = False
        observer._queue.closed = True
        observer._queue.room = 0
        if observer._sender is not None:
            observer._sender.stop(FLUSH_TIMEOUT)
            senders.append(observer._sender)
    deadline = time.monotonic() + FLUSH_TIMEOUT
    for sender in senders:
        sender.thread.join(max(0.0, deadline - time.monotonic()))
        if sender.undelivered:
            _log.warning("lilo timing: %d events were not delivered at exit", sender.undelivered)


def _close_all() -> None:
    _close(list(_open_observers))


def _forget_parent() -> None:
    observers = list(_open_observers)
    _open_observers.clear()
    for observer in observers:
        observer._forked()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_forget_parent)
