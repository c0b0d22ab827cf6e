"""Time on the device, from the process that owns it."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from . import wire
from ._plain import as_models, plain
from ._producer import Producer

MAX_UNRESOLVED: Final = 4096
"""Spans whose end the device has not reached yet. More are dropped and counted."""
LANE: Final = "device"


class _Running(NamedTuple):
    """A span whose end is queued on a CUDA stream."""

    models: tuple[object, ...]
    kind: object
    t0: float
    begun: Any
    ended: Any
    ok: bool


class DeviceTimer(Producer):
    """Measures how long the device worked on each command: the phase ``K.device``, beside the
    engine's ``K.execute``, so that what lies between them is host and transport.

    On CUDA it records two events on the stream that is current when the span begins, and reads
    them on the hook's own thread once the device has passed them: it never synchronises, and
    neither does the sidecar. Where torch is not loaded, or has not initialised CUDA, it is the
    wall time of the calling thread. Spans may nest, overlap, and run on several streams and
    threads; each stands for itself.

    It is a producer of its own beside the engine's observer, in the same process or another,
    with the same contract: it never raises, never blocks, and is bounded.
    """

    def __init__(self, socket_path: str | os.PathLike[str] | None = None) -> None:
        """``socket_path`` as in `TimingObserver`."""
        self._running: deque[_Running] = deque()
        super().__init__(socket_path, wire.Role.BACKEND, resolve=self._resolve_ended)

    @contextlib.contextmanager
    def span(self, models: str | Iterable[str], kind: object) -> Iterator[None]:
        """Time the body as device work of ``kind`` (a string, or an enum with a string value)
        for one model or several. An exception of the body passes through, and the span is
        recorded as failed."""
        held = self._held(models)
        t0, began = time.time(), time.perf_counter()
        cuda = _initialized_cuda()
        mark = None if cuda is None or held is None else self._mark(cuda, None)
        ok = False
        try:
            yield
            ok = True
        finally:
            seconds = time.perf_counter() - began
            if held is not None and cuda is None:
                self._report(held, kind, t0, seconds, ok)
            elif held is not None and mark is not None:
                self._end(cuda, mark, held, kind, t0, ok)

    def _held(self, models: object) -> tuple[object, ...] | None:
        """The models as they are now: the caller may go on changing its list."""
        try:
            return as_models(models)
        except Exception as error:  # noqa: BLE001 - the trainer must not feel what it passed
            self._queue.reject(error)
            return None

    def _mark(self, cuda: Any, stream: Any) -> tuple[Any, Any] | None:
        """Record an event on a stream, or the current one. None, and the call counted as
        rejected, where that fails: time of the host must not pass for the device's."""
        try:
            if cuda.is_current_stream_capturing():
                raise RuntimeError("a CUDA graph is being captured; time its replay instead")
            if stream is None:
                stream = cuda.current_stream()
            event = cuda.Event(enable_timing=True)
            event.record(stream)
        except Exception as error:  # noqa: BLE001 - a broken device is the trainer's to report
            self._queue.reject(error)
            return None
        return stream, event

    def _end(
        self,
        cuda: Any,
        mark: tuple[Any, Any],
        models: tuple[object, ...],
        kind: object,
        t0: float,
        ok: bool,
    ) -> None:
        if not self._has_room():
            return
        if len(self._running) >= MAX_UNRESOLVED:
            self._queue.dropped.add()
            return
        stream, begun = mark
        end = self._mark(cuda, stream)
        if end is not None:
            self._running.append(_Running(models, kind, t0, begun, end[1], ok))

    def _report(
        self, models: tuple[object, ...], kind: object, t0: float, seconds: float, ok: bool
    ) -> None:
        if self._has_room():
            self._append(models, kind, t0, seconds, ok)

    def _has_room(self) -> bool:
        queue = self._queue
        return len(queue.items) < queue.room or self._admit()

    def _resolve_ended(self) -> int:
        """On the sender's thread: report the spans whose end the device has reached."""
        for _ in range(len(self._running)):
            running = self._running.popleft()
            try:
                if running.ended.query():
                    seconds = running.begun.elapsed_time(running.ended) / 1000.0
                    # Admitted when it was reported; `close` turns away only what comes after.
                    self._append(running.models, running.kind, running.t0, seconds, running.ok)
                else:
                    self._running.append(running)
            except Exception as error:  # noqa: BLE001
                self._queue.reject(error)
        return len(self._running)

    def _append(
        self, models: tuple[object, ...], kind: object, t0: float, seconds: float, ok: bool
    ) -> None:
        try:
            word = plain(kind)
            if not isinstance(word, str):
                raise TypeError(f"a kind is a string, not a {type(kind).__name__}")
            name, t1 = f"device:{word}", t0 + seconds
            item = (wire.SPAN, models, name, LANE, t0, t1, None, None, None, ok, None)
        except Exception as error:  # noqa: BLE001 - the trainer must not feel what it passed
            self._queue.reject(error)
        else:
            self._queue.items.append(item)

    def _forked(self) -> None:
        super()._forked()
        self._running = deque()  # the parent's device work


def _initialized_cuda() -> Any:
    """torch.cuda where this process uses it already; None otherwise. Never imports torch, nor
    initialises CUDA."""
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
    try:
        return cuda if cuda is not None and cuda.is_initialized() else None
    except Exception:  # noqa: BLE001 - torch is only half imported, or not as expected
        return None
