"""Results that clients poll for."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

import trio

from .errors import UnknownRequestError
from .operations import Operation

MAX_FINISHED: Final = 4096
"""Results kept for clients that have not asked yet, or ask again: the newest of all models. A
client polls for its few open requests at a time; pending ones are bounded by the queues."""


class Future:
    """How one operation ends. Set once."""

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self.result: Mapping[str, Any] | None = None
        self.error: str | None = None
        self._finished = trio.Event()

    @property
    def state(self) -> str:
        """``pending``, ``done`` or ``failed``."""
        if not self._finished.is_set():
            return "pending"
        return "done" if self.error is None else "failed"

    async def wait(self, timeout: float) -> None:
        """Return when it is finished, or after ``timeout`` seconds."""
        with trio.move_on_after(timeout):
            await self._finished.wait()

    def set(self, result: Mapping[str, Any] | None, error: str | None) -> None:
        """Finish it: with a result, or an error."""
        self.result = result
        self.error = error
        self._finished.set()

    def to_json(self) -> dict[str, Any]:
        """What a client that polls gets."""
        answer: dict[str, Any] = {
            "request_id": self.operation.request_id,
            "state": self.state,
        }
        if self.state == "done":
            answer["result"] = self.result
        elif self.state == "failed":
            answer["error"] = self.error
        return answer


class Futures:
    """All futures by request id."""

    def __init__(self) -> None:
        self._pending: dict[str, Future] = {}
        self._finished: OrderedDict[str, Future] = OrderedDict()

    def add(self, operation: Operation) -> Future:
        """A pending one."""
        future = self._pending[operation.request_id] = Future(operation)
        return future

    def find(self, request_id: str) -> Future | None:
        """The one of this request, if it is pending or still kept."""
        return self._pending.get(request_id) or self._finished.get(request_id)

    def get(self, request_id: str) -> Future:
        """The same. Raises `UnknownRequestError`."""
        future = self.find(request_id)
        if future is None:
            raise UnknownRequestError(
                f"no request {request_id} is known here, or its result is no longer kept "
                f"(the newest {MAX_FINISHED} are)"
            )
        return future

    async def drained(self) -> None:
        """Return when none is pending."""
        for future in list(self._pending.values()):
            await future.wait(math.inf)

    def finish(
        self, operation: Operation, result: Mapping[str, Any] | None, error: str | None
    ) -> None:
        """Set the operation's future and count it among the finished."""
        future = self._pending.pop(operation.request_id)
        future.set(result, error)
        self._finished[operation.request_id] = future
        if len(self._finished) > MAX_FINISHED:
            self._finished.popitem(last=False)
