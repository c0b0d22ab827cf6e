"""Several observers as one, and putting the timing observer beside the one that is there."""

from __future__ import annotations

import logging
import os
from typing import Any

from ._observer import TimingObserver

_log = logging.getLogger("lilo_engine_hook")


class Observers:
    """Passes every call of the Observer interface on to each of its observers, in order.

    An observer that raises, or lacks the method, stops neither the others nor the engine; the
    first failure of each observer's method is logged with its traceback, later ones at debug.
    """

    def __init__(self, *observers: Any) -> None:
        """``observers``: any that are not None; an `Observers` among them is kept as one."""
        self.observers: tuple[Any, ...] = tuple(o for o in observers if o is not None)
        self._failed: set[tuple[int, str]] = set()

    def register_model(self, model_id: str, spec: object = None) -> None:
        self._call("register_model", model_id, spec)

    def forget_model(self, model_id: str) -> None:
        self._call("forget_model", model_id)

    def begin(self, operation: Any) -> None:
        self._call("begin", operation)

    def reuse(self, request_id: str) -> None:
        self._call("reuse", request_id)

    def finish(self, operation: Any, state: Any) -> None:
        self._call("finish", operation, state)

    def set_activity(self, lane: str, operation: Any) -> None:
        self._call("set_activity", lane, operation)

    def state(self, model: Any, state: str, **detail: Any) -> None:
        self._call("state", model, state, **detail)

    def span(
        self, model: Any, name: str, lane: str, t0: float, t1: float | None = None, **attrs: Any
    ) -> None:
        self._call("span", model, name, lane, t0, t1, **attrs)

    def close(self) -> None:
        self._call("close")

    def _call(self, method: str, /, *args: Any, **attrs: Any) -> None:
        for observer in self.observers:
            try:
                getattr(observer, method)(*args, **attrs)
            except Exception:  # noqa: BLE001 - the engine must not feel an observer's fault
                key = (id(observer), method)
                level = logging.DEBUG if key in self._failed else logging.WARNING
                self._failed.add(key)
                _log.log(
                    level,
                    "observer %s failed in %s",
                    type(observer).__name__,
                    method,
                    exc_info=True,
                )


def find_timing(observer: Any) -> TimingObserver | None:
    """The timing observer in ``observer``, which may be one, or an `Observers` that holds one."""
    if isinstance(observer, TimingObserver):
        return observer
    if isinstance(observer, Observers):
        for each in observer.observers:
            found = find_timing(each)
            if found is not None:
                return found
    return None


def with_timing(observer: Any, timing: TimingObserver) -> Observers:
    """``observer`` (or None) and a timing observer beside it: ``timing``, unless ``observer``
    has one of its own already."""
    if find_timing(observer) is None:
        return Observers(observer, timing)
    return observer if isinstance(observer, Observers) else Observers(observer)


def attach(engine: Any, socket_path: str | os.PathLike[str] | None = None) -> TimingObserver:
    """Set ``engine.observer`` to an `Observers` of whatever is there and a timing observer, and
    return the timing observer. Attaching again changes nothing and returns the same one.

    ``socket_path`` as in `TimingObserver`.
    """
    there = getattr(engine, "observer", None)
    timing = find_timing(there)
    if timing is None:
        timing = TimingObserver(socket_path)
    engine.observer = with_timing(there, timing)
    return timing
