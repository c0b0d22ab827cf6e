"""The latest timing of every trainer, for a control plane."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Self

from ._answer import parse_answer
from ._clients import sidecar_client
from ._endpoint import SidecarEndpoint
from ._http import json_object, quoted
from ._placement import recent_wait
from ._relay import relay
from .errors import UnexpectedAnswerError

if TYPE_CHECKING:
    import anyio
    import anyio.abc
    import httpx

POLL_TIMEOUT: Final = 5.0
"""Seconds for all of an answer, which takes milliseconds."""
MAX_BACKOFF: Final = 60.0
"""Seconds between two tries of a trainer that is away, if the interval is not longer."""
JITTER: Final = 0.2
"""Pauses vary by this part of them, so that many control planes do not ask in step."""
READER: Final = "lilo-poller"
"""Ends no interval, and so reads all since the trainer started, whoever else ends theirs. One name
for all pollers will do, since one that ends nothing has nothing of its own."""
_MAX_DOUBLINGS: Final = 16
"""Of a pause; far beyond MAX_BACKOFF, and still a float."""


@dataclass(frozen=True, slots=True)
class TrainerTiming:
    """What is known of one trainer."""

    answer: dict[str, Any] | None = None
    """The latest answer for all its models together since it started, as the sidecar gave it; None
    before one."""
    age_s: float | None = None
    """Seconds since that answer came."""
    error: str | None = None
    """Why the latest poll failed; None if it did not."""
    consecutive_failures: int = 0
    """Polls that failed since that answer."""
    wait_s: float | None = None
    """Seconds that its clients' commands waited recently (`recent_wait`); None before an
    answer."""


class _Trainer:
    def __init__(self, endpoint: SidecarEndpoint, scope: anyio.CancelScope) -> None:
        self.endpoint = endpoint
        self.scope = scope
        self.timing = TrainerTiming()
        self.received = 0.0


class TimingPoller:
    """Polls the aggregate of every trainer's sidecar, about every ``interval`` seconds.

        async with TimingPoller({"a": SidecarEndpoint("http://10.0.0.1:9411")}) as poller:
            poller.latest()["a"].wait_s

    Works on asyncio and trio; all methods belong to the one event loop. Each trainer has a task
    of its own, so one that is dead or slow delays no other; it is tried again after 1, 2, 4, ...
    intervals, at most 60 s. Polling ends no interval: nothing is reset.

    ``endpoints`` is copied; `add` and `remove` change the set later.
    """

    def __init__(self, endpoints: Mapping[str, SidecarEndpoint], interval: float = 5.0) -> None:
        if not 0 < interval < float("inf"):
            raise ValueError(f"interval is {interval!r}; it is a number of seconds above 0")
        self._interval = interval
        self._before_entry = dict(endpoints)
        self._trainers: dict[str, _Trainer] = {}
        self._tasks: anyio.abc.TaskGroup | None = None
        self._client: httpx.AsyncClient | None = None

    async def __aenter__(self) -> Self:
        import anyio

        self._client = sidecar_client()
        self._tasks = await anyio.create_task_group().__aenter__()
        for name, endpoint in list(self._before_entry.items()):
            self._start(name, endpoint)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._tasks is not None  # noqa: S101 - it was entered
        assert self._client is not None  # noqa: S101
        self._tasks.cancel_scope.cancel()
        try:
            # Without the body's exception, which would come back as a group: it is no task's.
            await self._tasks.__aexit__(None, None, None)
        finally:
            self._tasks = None
            await self._client.aclose()

    def add(self, name: str, endpoint: SidecarEndpoint) -> None:
        """Poll one more; under a name that is there, in its place, with nothing known of it."""
        self.remove(name)
        if self._tasks is None:
            self._before_entry[name] = endpoint
        else:
            self._start(name, endpoint)

    def remove(self, name: str) -> None:
        """Poll it no longer. Nothing happens for a name that is not there."""
        self._before_entry.pop(name, None)
        trainer = self._trainers.pop(name, None)
        if trainer is not None:
            trainer.scope.cancel()

    def latest(self) -> dict[str, TrainerTiming]:
        """What is known of every trainer now, in the order in which they came."""
        now = time.monotonic()
        known = {name: TrainerTiming() for name in self._before_entry} | {
            name: trainer.timing
            if trainer.timing.answer is None
            else replace(trainer.timing, age_s=now - trainer.received)
            for name, trainer in self._trainers.items()
        }
        return known

    def _start(self, name: str, endpoint: SidecarEndpoint) -> None:
        import anyio

        assert self._tasks is not None  # noqa: S101 - both callers have entered
        self._before_entry.pop(name, None)
        self._trainers[name] = trainer = _Trainer(endpoint, anyio.CancelScope())
        self._tasks.start_soon(self._poll, trainer)

    async def _poll(self, trainer: _Trainer) -> None:
        import anyio

        with trainer.scope:
            while True:
                await self._ask(trainer)
                await anyio.sleep(pause(self._interval, trainer.timing.consecutive_failures))

    async def _ask(self, trainer: _Trainer) -> None:
        """One poll, to an answer or an error."""
        known = trainer.timing
        try:
            assert self._client is not None  # noqa: S101 - tasks run while entered only
            relayed = await relay(
                self._client, trainer.endpoint, "GET", {"reader": READER}, POLL_TIMEOUT
            )
            answer = json_object(relayed.body)
            if relayed.status != 200:
                raise UnexpectedAnswerError(_refusal(relayed.status, answer))
            parse_answer(answer)
        except Exception as error:  # noqa: BLE001 - no trainer may end the polling of the others
            trainer.timing = replace(
                known,
                error=_reason(error),
                consecutive_failures=known.consecutive_failures + 1,
            )
        else:
            trainer.received = time.monotonic()
            trainer.timing = TrainerTiming(answer, wait_s=recent_wait(known.answer, answer))


def _refusal(status: int, answer: Mapping[str, Any]) -> str:
    said = f"status {status}: {answer.get('message')}"
    if answer.get("error") == "unknown_parameter":
        return f"the sidecar knows no readers; update lilo-timing beside the trainer ({said})"
    return said


def _reason(error: Exception) -> str:
    """For the operator, so with the cause that `relay` keeps from tenants."""
    cause = f" ({error.__cause__!r})" if error.__cause__ is not None else ""
    return quoted(f"{error}{cause}" if str(error) else repr(error))


def pause(interval: float, failures: int) -> float:
    """Seconds until the next poll."""
    backoff = interval * 2.0 ** min(max(failures - 1, 0), _MAX_DOUBLINGS)
    bounded = min(backoff, max(interval, MAX_BACKOFF))
    return bounded * random.uniform(1.0 - JITTER, 1.0 + JITTER)  # noqa: S311 - no secret
