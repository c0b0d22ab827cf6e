"""Timing for a training loop written by hand, without an engine that calls an observer.

from lilo_engine_hook.loop import LoopTiming

timing = LoopTiming()
with timing.command("my-model", "forward_backward") as command, timing.execute(command):
    ...
"""

from __future__ import annotations

import functools
import inspect
import itertools
import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final, ParamSpec, Self, TypeVar
from weakref import WeakValueDictionary

from ._observer import TimingObserver
from ._observers import Observers, find_timing
from ._plain import plain

GPU: Final = "gpu"
_P = ParamSpec("_P")
_R = TypeVar("_R")
_innermost: ContextVar[Command | None] = ContextVar("lilo_engine_hook_command", default=None)
"""The command that this thread, or this task, is in."""


class LoopTiming:
    """Commands and what the lanes do with them, as ``with`` blocks and as decorators.

    Contract of every method but `close`: any thread or async task; never blocks; never raises for
    what it is passed. What makes no event is counted as rejected by the timing observer, and the
    loop goes on. An exception of the body passes through, and what it left is reported as failed.

    The gpu lane is one: whoever runs two blocks of `execute` or `capture` at the same time, in two
    threads say, has them counted as if they had run one after the other.
    """

    def __init__(self, observer: Any = None) -> None:
        """``observer`` is told, or several in an `Observers`; by default a `TimingObserver`."""
        self.observer = Observers(TimingObserver() if observer is None else observer)
        self._numbers = itertools.count(1)  # of commands: of each model they rise, which is enough
        self._on_gpu: WeakValueDictionary[int, Work] = WeakValueDictionary()
        """Open blocks by their ids, in the order they began. One that was begun and let go of
        without its end is not open for ever."""

    def command(self, model_id: str, kind: Any, *, tokens: float | None = None) -> Command:
        """The body is a command of ``model_id``: it was submitted when the body begins, and is
        over when the body ends. ``kind`` is a string, or an enum with a string value; ``tokens``
        is what it weighs within a batch (one, if none of the batch's commands says)."""
        return Command(self, model_id, kind, tokens)

    def execute(self, commands: Command | Sequence[Command] | None = None) -> Work:
        """The gpu lane works on the body: for one command, or for several of one kind that share
        a batch. Without any, for the innermost `command` that the calling thread or task is in."""
        return Work(self, "", GPU, commands)

    def capture(self, commands: Command | Sequence[Command] | None = None) -> Work:
        """As `execute`, of a command that saves: the body copies what `persist` will write."""
        return Work(self, "capture:", GPU, commands)

    def persist(
        self, commands: Command | Sequence[Command] | None = None, *, lane: str = "checkpoint"
    ) -> Work:
        """The body writes what was captured, while the gpu lane may go on. ``lane`` is
        ``checkpoint``, or ``sampler``."""
        return Work(self, "persist:", lane, commands)

    def accept(self, model_id: str) -> Work:
        """The body makes a model. One that is not told of is known from its first command on."""
        return Work(self, "", GPU, (), accepts=model_id)

    def forget(self, model_id: str) -> None:
        """A model is gone; the sidecar lets go of all it holds for it."""
        self.observer.forget_model(model_id)

    def close(self) -> None:
        """Deliver what was reported, for a second at most, and stop."""
        self.observer.close()

    def _say(self, work: Work | None) -> None:
        """Tell what the gpu lane does: ``work``, or nothing. Takes no lock: where another thread
        began or finished a block meanwhile, what is true now is told once more, so that the last
        word is true, whoever has it."""
        while True:
            if work is None:
                self.observer.state([], "idle")
            else:
                self.observer.state(work._models, f"executing:{work._name}")
            on_gpu = self._open()
            if (work in on_gpu) if on_gpu else work is None:
                return
            work = on_gpu[-1] if on_gpu else None

    def _open(self) -> list[Work]:
        # valuerefs() copies in one C call; other ways to iterate fail while a thread adds one.
        return [work for ref in self._on_gpu.valuerefs() if (work := ref()) is not None]

    def _reject(self, reason: object) -> None:
        timing = find_timing(self.observer)
        if timing is not None:
            timing._queue.reject(reason)


class _Timed:
    """A ``with`` block. As a decorator of a function or a coroutine function, every call is a
    block of its own."""

    def begin(self) -> None:
        """What entering the block does, for a loop that is no block. Begun already: nothing."""
        raise NotImplementedError

    def finish(self, *, failed: bool = False) -> None:
        """What leaving it does; any thread. Not begun, or finished already: nothing."""
        raise NotImplementedError

    def _again(self) -> Self:
        raise NotImplementedError

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(
        self, error: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        self.finish(failed=error is not None)

    def __call__(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        """Raises TypeError for a generator function: nobody can say when its body ends."""
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(
                f"{function.__qualname__} is a generator function, which ends when its caller "
                "likes; use `with` within it"
            )

        @functools.wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            with self._again():
                return function(*args, **kwargs)

        @functools.wraps(function)
        async def call_async(*args: _P.args, **kwargs: _P.kwargs) -> Any:
            with self._again():
                return await function(*args, **kwargs)  # type: ignore[misc]

        return call_async if inspect.iscoroutinefunction(function) else call  # type: ignore[return-value]


class Command(_Timed):
    """One command, as the Observer interface has it."""

    payload = None

    def __init__(self, loop: LoopTiming, model_id: str, kind: Any, tokens: float | None) -> None:
        self.model_id = model_id
        self.kind = kind
        self.tokens = tokens
        self.seq_id = 0
        self.request_id = ""
        self._loop = loop
        self._begun = False
        self._outer: Command | None = None

    def begin(self) -> None:
        if self._begun:
            return
        self._begun = True
        self.seq_id = next(self._loop._numbers)
        if isinstance(self.model_id, str):  # another one is the observer's to reject
            self.request_id = ":".join((self.model_id, str(self.seq_id)))
        self._loop.observer.begin(self)

    def finish(self, *, failed: bool = False) -> None:
        if self._begun:
            self._begun = False
            self._loop.observer.finish(self, "failed" if failed else "done")

    def _again(self) -> Self:
        return type(self)(self._loop, self.model_id, self.kind, self.tokens)

    def __enter__(self) -> Self:
        self._outer = _innermost.get()
        _innermost.set(self)
        return super().__enter__()

    def __exit__(
        self, error: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        self.finish(failed=error is not None)
        # Not by a token: it raises where a task leaves a block that another one entered.
        _innermost.set(self._outer)
        self._outer = None


class Work(_Timed):
    """One span of a lane."""

    def __init__(
        self,
        loop: LoopTiming,
        prefix: str,
        lane: str,
        commands: Command | Sequence[Command] | None,
        *,
        accepts: str | None = None,
    ) -> None:
        self._loop = loop
        self._prefix = prefix
        self._lane = lane
        self._given = commands
        self._accepts = accepts
        self._name = ""
        self._models: list[str] = []
        self._details: dict[str, Any] = {}
        self._t0: float | None = None

    def begin(self) -> None:
        if self._t0 is not None:
            return
        try:
            commands = self._commands()
            if self._accepts is not None:
                self._loop.observer.register_model(self._accepts)
                self._name, self._models, self._details = "accept", [self._accepts], {"n": 1}
            else:
                self._name = f"{self._prefix}{plain(commands[0].kind)}"
                self._models = [command.model_id for command in commands]
                self._details = _details(commands)
        except Exception as error:  # noqa: BLE001 - the loop must not feel what it passed
            self._loop._reject(error)
            return
        self._t0 = time.time()
        if self._lane == GPU:
            self._loop._on_gpu[id(self)] = self
            self._loop._say(self)
        else:
            self._loop.observer.set_activity(self._lane, commands[0])

    def finish(self, *, failed: bool = False) -> None:
        t0, self._t0 = self._t0, None
        if t0 is None:
            return
        self._loop.observer.span(
            self._models, self._name, self._lane, t0, time.time(), ok=not failed, **self._details
        )
        self._put_down()

    def abandon(self) -> None:
        """Finish without a span: nobody knows when it ended, or whether it ran at all."""
        if self._t0 is not None:
            self._t0 = None
            self._put_down()

    def _put_down(self) -> None:
        if self._lane != GPU:
            self._loop.observer.set_activity(self._lane, None)
            return
        self._loop._on_gpu.pop(id(self), None)
        if not self._loop._open():
            self._loop._say(None)

    def _again(self) -> Self:
        return type(self)(self._loop, self._prefix, self._lane, self._given, accepts=self._accepts)

    def _commands(self) -> tuple[Command, ...]:
        """Those of now: the loop may go on changing its list."""
        if self._given is None:
            command = _innermost.get()
            if command is None:
                raise LookupError(
                    "work outside of a command; name its commands, as in execute(command), or be "
                    "within `with timing.command(...)`"
                )
            return (command,)
        commands = (self._given,) if isinstance(self._given, Command) else tuple(self._given)
        if not commands and self._accepts is None:
            raise ValueError("no command is given; pass those that run together, one at least")
        return commands


def _details(commands: Sequence[Command]) -> dict[str, Any]:
    details: dict[str, Any] = {
        "request_ids": [command.request_id for command in commands],
        "seq_ids": [command.seq_id for command in commands],
        "n": len(commands),
    }
    weights = [command.tokens for command in commands]
    if any(weight is not None for weight in weights):
        details["tokens"] = [1 if weight is None else weight for weight in weights]
    return details
