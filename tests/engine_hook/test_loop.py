"""Timing of a hand-written loop: what the hook is told by its blocks and decorators."""

from __future__ import annotations

import asyncio
import enum
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lilo_engine_hook import TimingObserver, wire
from lilo_engine_hook.loop import LoopTiming
from support.receiver import Receiver, receiver

pytestmark = pytest.mark.usefixtures("patient")
BACKWARD = "forward_backward"


@pytest.fixture
def far(tmp_path: Path) -> Iterator[Receiver]:
    with receiver(tmp_path / "timing.sock") as far_end:
        yield far_end


def told(far: Receiver, use: Callable[[LoopTiming], object]) -> list[wire.Event]:
    """The events of what a loop does."""
    timing = LoopTiming(TimingObserver(far.path))
    use(timing)
    timing.close()
    return far.events


class Recorder:
    """An observer that keeps every call: ``(method, arguments, keyword arguments)``."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, method: str) -> Any:
        return lambda *args, **attrs: self.calls.append((method, args, attrs))


class Broken:
    """An observer that raises from every method."""

    def __getattr__(self, method: str) -> Any:
        raise RuntimeError(f"{method} is broken")


def test_the_calls_are_those_of_an_engine(far: Receiver) -> None:
    """In an engine's order, with ids that name the command in every event."""

    class Kind(enum.Enum):
        STEP = "optim_step"

    def use(timing: LoopTiming) -> None:
        with timing.accept("m"):
            pass
        with timing.command("m", Kind.STEP) as command, timing.execute(command):
            pass
        timing.forget("m")

    events = told(far, use)
    assert [type(event).__name__ for event in events] == [
        "Register", "State", "Span", "State",
        "Begin", "State", "Span", "State", "Finish",
        "Forget",
    ]  # fmt: skip
    begin, span, finish = events[4], events[6], events[8]
    assert isinstance(begin, wire.Begin)
    assert isinstance(span, wire.Span)
    assert isinstance(finish, wire.Finish)
    assert (begin.kind, begin.seq, begin.request_id) == ("optim_step", 1, "m:1")
    assert (span.name, span.lane, span.n, span.ok) == ("optim_step", "gpu", 1, True)
    assert (span.models, span.request_ids) == (("m",), ("m:1",))
    assert finish.request_id == "m:1"
    assert [event.state for event in events if isinstance(event, wire.State)] == [
        "executing:accept", "idle", "executing:optim_step", "idle",
    ]  # fmt: skip


def test_exceptions_of_the_body_pass_through_untouched() -> None:
    """And are reported as failed: by the span, and by the finish."""
    recorder = Recorder()
    timing = LoopTiming(recorder)
    error = KeyboardInterrupt()
    with (
        pytest.raises(KeyboardInterrupt) as raised,
        timing.command("m", BACKWARD),
        timing.execute(),
    ):
        raise error
    assert raised.value is error
    assert [attrs["ok"] for method, _, attrs in recorder.calls if method == "span"] == [False]
    assert [args[1] for method, args, _ in recorder.calls if method == "finish"] == ["failed"]


def test_decorated_functions_are_a_command_each_call(far: Receiver) -> None:
    """With their own name, arguments and result; one within another, or within itself, executes
    its own command."""

    def use(timing: LoopTiming) -> None:
        @timing.command("m", "optim_step")
        @timing.execute()
        def inner(value: int) -> int:
            """Adds one."""
            return value + 1

        @timing.command("m", BACKWARD)
        def outer(value: int) -> int:
            with timing.execute():
                value += 1
            return inner(value)

        @timing.command("m", "forward")
        def twice(again: bool) -> None:
            with timing.execute():
                pass
            if again:
                twice(False)
            with timing.execute():  # still its own command
                pass

        twice(True)
        assert outer(1) == 3
        assert inner(value=1) == 2
        assert (inner.__name__, inner.__doc__) == ("inner", "Adds one.")

    spans = [event for event in told(far, use) if isinstance(event, wire.Span)]
    assert [(span.name, span.request_ids) for span in spans] == [
        ("forward", ("m:1",)),
        ("forward", ("m:2",)),
        ("forward", ("m:2",)),
        ("forward", ("m:1",)),
        (BACKWARD, ("m:3",)),
        ("optim_step", ("m:4",)),
        ("optim_step", ("m:5",)),
    ]


def test_coroutine_functions_are_timed_until_they_end(far: Receiver) -> None:
    """Not until they are called; tasks that interleave are each in a command of their own."""

    def use(timing: LoopTiming) -> None:
        @timing.command("m", BACKWARD)
        async def step(mine: asyncio.Event, others: asyncio.Event) -> None:
            mine.set()
            await others.wait()
            with timing.execute():
                await asyncio.sleep(0)

        async def both() -> None:
            a, b = asyncio.Event(), asyncio.Event()
            await asyncio.gather(step(a, b), step(b, a))

        asyncio.run(both())

    events = told(far, use)
    assert [type(event).__name__ for event in events[:2]] == ["Begin", "Begin"]
    spans = {event.request_ids for event in events if isinstance(event, wire.Span)}
    assert spans == {("m:1",), ("m:2",)}
    assert [type(e).__name__ for e in events].count("Finish") == 2


def test_a_generator_function_is_refused_when_it_is_decorated() -> None:
    """Nobody can say when its body ends."""
    timing = LoopTiming(Recorder())

    def batches() -> Iterator[int]:
        yield 1

    with pytest.raises(TypeError, match="use `with` within it"):
        timing.command("m", BACKWARD)(batches)


def test_a_command_can_begin_and_finish_anywhere(far: Receiver) -> None:
    """Without a block, in two threads, and twice without harm."""

    def use(timing: LoopTiming) -> None:
        command = timing.command("m", BACKWARD)
        command.finish()
        command.begin()
        command.begin()
        thread = threading.Thread(target=command.finish, kwargs={"failed": True})
        thread.start()
        thread.join()
        command.finish()
        work = timing.execute(command)
        work.finish()
        work.begin()
        work.abandon()
        work.finish()
        work.abandon()

    names = [type(event).__name__ for event in told(far, use)]
    assert names == ["Begin", "Finish", "State", "State"]


def test_bad_calls_never_raise_and_are_counted(
    far: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    """The loop goes on, and the log has the first reason: work outside of a command, and what is
    no command, no kind or no model."""
    timing = LoopTiming(TimingObserver(far.path))
    ran = 0
    bad: list[Any] = [7, [], [None], object(), timing.command(7, BACKWARD)]  # type: ignore[arg-type]
    with timing.execute():
        ran += 1
    for each in bad:
        with timing.execute(each):
            ran += 1
    for model, kind in ((7, BACKWARD), ("m", object()), ("", BACKWARD), (None, None)):
        with timing.command(model, kind):  # type: ignore[arg-type]
            ran += 1
    with timing.command("m", BACKWARD, tokens=float("nan")), timing.execute():
        ran += 1
    timing.close()
    assert ran == 11
    assert far.rejected >= 11
    assert "rejected: work outside of a command; name its commands" in caplog.text
    assert not any(isinstance(event, wire.Span) for event in far.events)


def test_an_observer_that_raises_is_not_felt() -> None:
    """None of its methods, by a block or a decorator."""
    timing = LoopTiming(Broken())
    with timing.accept("m"), timing.command("m", "save_weights"), timing.persist():
        pass
    assert timing.command("m", BACKWARD)(timing.execute()(lambda: 1))() == 1
    with timing.execute():
        pass
    timing.forget("m")
    timing.close()


def test_the_lane_is_idle_only_when_nothing_runs_on_it(far: Receiver) -> None:
    """Work that overlaps, which it should not, ends with one idle."""

    def use(timing: LoopTiming) -> None:
        with timing.command("m", BACKWARD) as command:
            first, second = timing.execute(command), timing.execute(command)
            first.begin()
            second.begin()
            first.finish()
            second.finish()

    states = [event.state for event in told(far, use) if isinstance(event, wire.State)]
    assert states == [f"executing:{BACKWARD}"] * 2 + ["idle"]
