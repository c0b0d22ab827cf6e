"""The observer a trainer's engine calls."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, Protocol

from . import wire
from ._plain import as_models, copied
from ._producer import Producer
from ._queue import Weigh
from .wire import (
    ACTIVITY,
    BEGIN,
    FINISH,
    FORGET,
    GAUGE,
    MAX_COMMANDS_PER_SPAN,
    REGISTER,
    SPAN,
    STATE,
)


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
    @property
    def payload(self) -> Any: ...


class TimingObserver(Producer):
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

    def __init__(
        self,
        socket_path: str | os.PathLike[str] | None = None,
        *,
        weigh: Weigh | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``socket_path`` defaults to ``LILO_TIMING_SOCKET``, then to
        ``/tmp/lilo-timing-<uid>/timing.sock``. Never raises: where it cannot work it says so
        in the log, once, and drops what it is told.

        ``weigh`` tells a command's weight within a batch from its operation's payload (see
        `tinker_tokens`). It runs on the hook's thread, within 50 ms of the call; until then the
        payload is kept, and only the number leaves the process. Without it, and where it
        fails, a command weighs one. ``clock`` gives Unix seconds; a replay brings its own."""
        self._clock = clock
        super().__init__(socket_path, wire.Role.ENGINE, weigh=weigh)

    # --- what the engine calls ------------------------------------------------------------
    #
    # Each method repeats the lines around its append, and copies an ordinary list by itself: a
    # helper in between would be one more Python call on the engine's thread, and those are most
    # of what it costs.

    def register_model(self, model_id: str, spec: object = None) -> None:
        """A model was asked for. Its wait until the ``accept`` span starts here."""
        queue = self._queue
        try:
            items = queue.items
            if len(items) < queue.room or self._admit():
                items.append((REGISTER, self._clock(), model_id))
        except Exception as error:  # noqa: BLE001
            queue.reject(error)

    def forget_model(self, model_id: str) -> None:
        """A model is gone; the sidecar lets go of all it holds for it."""
        queue = self._queue
        try:
            items = queue.items
            if len(items) < queue.room or self._admit():
                items.append((FORGET, self._clock(), model_id))
        except Exception as error:  # noqa: BLE001
            queue.reject(error)

    def begin(self, operation: Operation) -> None:
        """A command was submitted: its queue wait starts now."""
        queue = self._queue
        try:
            items = queue.items
            if len(items) < queue.room or self._admit():
                items.append(
                    (
                        BEGIN,
                        self._clock(),
                        operation.model_id,
                        operation.request_id,
                        operation.seq_id,
                        operation.kind,
                        None if self._weigh is None else operation.payload,
                    )
                )
        except Exception as error:  # noqa: BLE001 - an engine's attribute may run any code
            queue.reject(error)

    def reuse(self, request_id: str) -> None:
        """A submission was repeated and joins the command that is there: nothing to tell, since
        a command's wait is counted from its first submission."""
        if type(request_id) is not str:
            self._queue.reject("reuse() takes a request id, a string")

    def finish(self, operation: Operation, state: object) -> None:
        """A command is over; ``state``, the engine's word for how it ended, goes nowhere."""
        queue = self._queue
        try:
            items = queue.items
            if len(items) < queue.room or self._admit():
                items.append((FINISH, self._clock(), operation.model_id, operation.request_id))
        except Exception as error:  # noqa: BLE001
            queue.reject(error)

    def set_activity(self, lane: str, operation: Operation | None) -> None:
        """A lane took up ``operation``, or put its work down (None)."""
        queue = self._queue
        try:
            items = queue.items
            if len(items) < queue.room or self._admit():
                if operation is None:
                    item: tuple[object, ...] = (
                        ACTIVITY,
                        self._clock(),
                        lane,
                        None,
                        None,
                        None,
                    )
                else:
                    item = (
                        ACTIVITY,
                        self._clock(),
                        lane,
                        operation.model_id,
                        operation.request_id,
                        operation.kind,
                    )
                items.append(item)
        except Exception as error:  # noqa: BLE001
            queue.reject(error)

    def state(self, model: str | list[str] | tuple[str, ...], state: str, **detail: object) -> None:
        """``executing:<name>`` when a span starts, ``idle`` when the gpu lane drains."""
        queue = self._queue
        try:
            items = queue.items
            if len(items) < queue.room or self._admit():
                models: tuple[object, ...] | None
                if state == "idle":
                    models = None  # it speaks of every model there is: that is the lane, not a list
                elif type(model) is list and len(model) <= MAX_COMMANDS_PER_SPAN:
                    models = tuple(model)
                else:
                    models = as_models(model)
                items.append((STATE, self._clock(), models, state))
        except Exception as error:  # noqa: BLE001
            queue.reject(error)

    def span(
        self,
        model: str | list[str] | tuple[str, ...],
        name: str,
        lane: str,
        t0: float,
        t1: float | None = None,
        *,
        request_ids: list[str] | tuple[str, ...] | None = None,
        seq_ids: list[int] | tuple[int, ...] | None = None,
        n: int | None = None,
        ok: bool | None = None,
        tokens: list[float] | tuple[float, ...] | None = None,
        **others: object,
    ) -> None:
        """A lane worked on ``name`` (``<kind>``, ``capture:<kind>`` or ``persist:<kind>``) for
        one model or several, from ``t0`` to ``t1`` (Unix seconds; None is now). ``request_ids``
        names the commands in it, ``n`` counts them, ``ok`` is False after a failure, ``tokens``
        weighs them, one number for each. Other attributes stay here."""
        queue = self._queue
        try:
            items = queue.items
            if len(items) < queue.room or self._admit():
                models: tuple[object, ...]
                if type(model) is list and len(model) <= MAX_COMMANDS_PER_SPAN:
                    models = tuple(model)
                else:
                    models = as_models(model)
                ids: tuple[object, ...] | None = None
                if type(request_ids) is list and len(request_ids) <= MAX_COMMANDS_PER_SPAN:
                    ids = tuple(request_ids)
                elif request_ids is not None:
                    ids = copied(request_ids)
                items.append(
                    (
                        SPAN,
                        models,
                        name,
                        lane,
                        t0,
                        self._clock() if t1 is None else t1,
                        ids,
                        None if seq_ids is None else copied(seq_ids),
                        n,
                        ok,
                        None if tokens is None else copied(tokens),
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

    def _milestone(self, name: str) -> None:
        queue = self._queue
        try:
            items = queue.items
            if len(items) < queue.room or self._admit():
                items.append((GAUGE, self._clock(), name))
        except Exception as error:  # noqa: BLE001
            queue.reject(error)
