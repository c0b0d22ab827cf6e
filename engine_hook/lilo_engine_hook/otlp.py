"""An observer that reports commands as OpenTelemetry traces, for whoever has a tracing backend.

from lilo_engine_hook import Observers, TimingObserver
from lilo_engine_hook.otlp import OtlpObserver

engine.observer = Observers(TimingObserver(), OtlpObserver())
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar, cast

try:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Link, Status, StatusCode

    from ._otlp_command import OpenCommand
    from ._otlp_export import ended_within, exporting_provider, nanoseconds, text
except ImportError as missing:
    raise ImportError(
        "lilo_engine_hook.otlp needs the OpenTelemetry SDK and its OTLP exporter: "
        "pip install 'lilo-timing[otlp]'"
    ) from missing

from . import _queue
from ._observer import Operation
from ._plain import as_models, copied, plain
from ._process import is_secondary_rank
from .wire import checks

MAX_OPEN: Final = 4096
"""Commands submitted and not finished, as in the sidecar: 256 models times 16. Beyond it the oldest
is ended, for a command that nobody finishes must not keep others out for ever."""
CLOSE_TIMEOUT: Final = 2.0
"""Seconds that `OtlpObserver.close` and interpreter exit may take to export what is left."""
ACCEPT: Final = "accept"
_FAILED: Final = frozenset({"failed", "error"})
"""An engine's words for a command that failed."""

_log = logging.getLogger("lilo_engine_hook")
_Method = TypeVar("_Method", bound=Callable[..., None])


def _never_raises(method: _Method) -> _Method:
    @functools.wraps(method)
    def call(self: OtlpObserver, *args: Any, **kwargs: Any) -> None:
        if self._tracer is None:
            return
        try:
            method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - the engine must not feel what it passed
            self._reject(method.__name__, error)

    return cast(_Method, call)


class OtlpObserver:
    """Exports what the engine does as spans, over OTLP/HTTP:

    - a command is a trace: its span lasts from its submission to its finish, and has a child for
      the time it waited for a lane;
    - what a lane does is a span of its own, with a link to each of the commands in it.

    Every method but `close` may be called by any thread, but not by a signal handler, and never
    raises. It is not as light as the `TimingObserver`: a call makes a span, under the SDK's locks,
    in some tens of microseconds. It does no I/O: the SDK's thread exports. At 2,048 finished spans
    that are not exported (``OTEL_BSP_MAX_QUEUE_SIZE``) the SDK drops one and says so in the log;
    `evicted` and `rejected` count what is turned away here.

    No token, weight, prompt or path leaves: ids, kinds, lanes and counts do. The receiver is the
    operator's, since spans name every model. In a distributed job only rank 0 exports.
    """

    def __init__(self, provider: TracerProvider | None = None) -> None:
        """Exports as ``OTEL_EXPORTER_OTLP_ENDPOINT`` and the other variables of OpenTelemetry's
        specification say, or through a ``provider`` of the trainer's own, which `close` flushes
        and does not shut down. Never raises: where it cannot work it says so in the log, and does
        nothing."""
        self.evicted = 0
        """Commands whose finish was not waited for any more, `MAX_OPEN` being open."""
        self.rejected = 0
        """Calls that make no span."""
        self._open: dict[tuple[str, str], OpenCommand] = {}
        """By ("command", request id) or ("model", its id), the oldest first."""
        self._lock = threading.Lock()
        self._shared = provider is not None
        self._tracer: Any = None
        if is_secondary_rank():
            return
        try:
            self._provider = exporting_provider() if provider is None else provider
            self._tracer = self._provider.get_tracer("lilo_engine_hook")
        except Exception as error:  # noqa: BLE001 - what the environment says is no number, no file
            _log.warning(
                "lilo otlp is off: %s; correct the OTEL_ variables of the environment", error
            )
            return
        atexit.register(self.close)
        _observers.add(self)

    def _after_fork(self) -> None:
        """The child has its own commands; another thread may have held the lock."""
        self._lock = threading.Lock()
        self._open = {}
        self.evicted = self.rejected = 0

    # --- what the engine calls ------------------------------------------------------------

    @_never_raises
    def register_model(self, model_id: str, spec: object = None) -> None:
        """A model was asked for: a span ``accept`` until the engine accepted it."""
        self._begin(("model", model_id), ACCEPT, {"lilo.model_id": text(model_id)})

    @_never_raises
    def forget_model(self, model_id: str) -> None:
        """A model is gone."""
        found = self._pop(("model", text(model_id)))
        if found is not None:
            found.end(abandoned=True)

    @_never_raises
    def begin(self, operation: Operation) -> None:
        """A command was submitted."""
        kind, request_id = text(operation.kind), text(operation.request_id)
        attributes = {
            "lilo.model_id": text(operation.model_id),
            "lilo.request_id": request_id,
            "lilo.seq_id": checks.integer(plain(operation.seq_id), "a sequence id"),
            "lilo.kind": kind,
        }
        self._begin(("command", request_id), kind, attributes)

    @_never_raises
    def reuse(self, request_id: str) -> None:
        """A submission was repeated: an event of the command's span."""
        found = self._open.get(("command", text(request_id)))
        if found is not None:
            found.span.add_event("submitted again")

    @_never_raises
    def finish(self, operation: Operation, state: object) -> None:
        """A command is over. Of ``state`` only whether it failed is told: it may hold the text of
        an error."""
        found = self._pop(("command", text(operation.request_id)))
        word = plain(state)
        failed = isinstance(word, str) and word.lower() in _FAILED
        if found is not None:
            found.end(failed=failed)

    @_never_raises
    def set_activity(self, lane: str, operation: Operation | None) -> None:
        """Nothing to tell: the lane's span comes at its end."""

    @_never_raises
    def state(self, model: object, state: str, **detail: object) -> None:
        """Nothing to tell: the lane's span comes at its end."""

    @_never_raises
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
        **others: object,
    ) -> None:
        """A lane worked for one model or several, from ``t0`` to ``t1`` (Unix seconds; None is
        now), on the commands that ``request_ids`` names, or ``seq_ids`` where there is one
        model."""
        models = tuple(dict.fromkeys(text(each) for each in as_models(model)))
        start = nanoseconds(t0)
        end = max(start, time.time_ns() if t1 is None else nanoseconds(t1))
        commands = [("command", each) for each in _request_ids(models, request_ids, seq_ids)]
        if name == ACCEPT:
            commands += [("model", each) for each in models]
        found = [one for each in commands if (one := self._open.get(each)) is not None]
        attributes: dict[str, Any] = {
            "lilo.lane": text(lane),
            "lilo.models": models,
            "lilo.commands": checks.integer(plain(n), "n") if n else len(found) or len(models),
        }
        links = [Link(each.span.get_span_context()) for each in found]
        span = self._tracer.start_span(
            text(name), Context(), attributes=attributes, links=links, start_time=start
        )
        if ok is False:
            span.set_status(Status(StatusCode.ERROR))
        span.end(end)
        for command in found:
            command.take_up(self._tracer, start)
            if ok is False:
                command.fail()
        if name == ACCEPT:
            for each in models:
                if (creation := self._pop(("model", each))) is not None:
                    creation.end(end)

    def close(self) -> None:
        """Export what is there, commands that are not finished included, for at most
        `CLOSE_TIMEOUT` seconds, and stop. May be called again; what is reported afterwards is
        passed over."""
        if self._tracer is None:
            return
        self._tracer = None
        atexit.unregister(self.close)
        for key in list(self._open):
            if (left := self._pop(key)) is not None:
                left.end(abandoned=True)
        # Either takes as long as it likes, with a receiver that is away.
        export = self._provider.force_flush if self._shared else self._provider.shutdown
        if not ended_within(CLOSE_TIMEOUT, export):
            _log.warning(
                "lilo otlp: not everything was exported within %.0f s; "
                "is there a receiver at OTEL_EXPORTER_OTLP_ENDPOINT?",
                CLOSE_TIMEOUT,
            )

    # --- what they are made of ------------------------------------------------------------

    def _begin(self, key: tuple[str, str], name: str, attributes: dict[str, Any]) -> None:
        if key in self._open:
            return  # a retry: the command has waited since its first submission
        begun = time.time_ns()
        # A trace of its own, whatever span the engine's thread is in.
        span = self._tracer.start_span(name, Context(), attributes=attributes, start_time=begun)
        oldest = None
        with self._lock:
            if len(self._open) >= MAX_OPEN:
                oldest = self._open.pop(next(iter(self._open)))
                self.evicted += 1
            self._open[key] = OpenCommand(name, span, begun)
        if oldest is not None:
            oldest.end(abandoned=True)

    def _pop(self, key: tuple[str, str]) -> OpenCommand | None:
        with self._lock:
            return self._open.pop(key, None)

    def _reject(self, method: str, error: Exception) -> None:
        with self._lock:
            self.rejected += 1
            first = self.rejected == 1
        if first:
            _log.warning(
                "lilo otlp: a call of %s makes no span: %s; further ones are only counted",
                method,
                _queue.text_of(error),
            )


def _request_ids(
    models: tuple[str, ...],
    request_ids: list[str] | tuple[str, ...] | None,
    seq_ids: list[int] | tuple[int, ...] | None,
) -> Iterable[Any]:
    if request_ids is not None:
        return copied(request_ids)
    if seq_ids is not None and len(models) == 1:
        return [f"{models[0]}:{seq_id}" for seq_id in copied(seq_ids)]
    return ()


_observers: weakref.WeakSet[OtlpObserver] = weakref.WeakSet()


def _after_fork() -> None:
    for observer in list(_observers):
        observer._after_fork()


os.register_at_fork(after_in_child=_after_fork)
