"""Timing of a hand-written loop: blocks and decorators, beside a real sidecar."""

from __future__ import annotations

import asyncio
import enum
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lilo_engine_hook import TimingObserver, _producer, wire
from lilo_engine_hook.loop import LoopTiming
from support.receiver import Receiver, receiver
from support.sidecar import TIMEOUT, SidecarProcess, start_sidecar
from support.snippets import snippet

BACKWARD = "forward_backward"


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    with start_sidecar(tmp_path_factory.mktemp("sidecar")) as running:
        yield running


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is no failure: what a loop reported is delivered when it is closed."""
    monkeypatch.setattr(_producer, "FLUSH_TIMEOUT", TIMEOUT)


@pytest.fixture
def timing(sidecar: SidecarProcess) -> Iterator[LoopTiming]:
    """A trainer of its own; its predecessor's models are gone."""
    timing = LoopTiming(TimingObserver(sidecar.socket))
    yield timing
    timing.close()


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


# --- what the sidecar makes of it -----------------------------------------------------------


def test_a_step_is_split_into_its_parts(sidecar: SidecarProcess, timing: LoopTiming) -> None:
    """Waiting until the lane takes the command up, work, and what lies between the commands: each
    within what the loop itself measured, and all of it the wall clock's."""
    began = time.time()
    with timing.accept("m"):
        pass
    with timing.command("m", BACKWARD) as command:
        time.sleep(0.02)
        with timing.execute(command):
            time.sleep(0.05)
    time.sleep(0.03)
    with timing.command("m", "optim_step"), timing.execute():
        time.sleep(0.01)
    took = time.time() - began
    timing.close()
    answer = sidecar.timing("m")
    phases, step = answer["phases"], answer["step"]
    assert {name: figures["count"] for name, figures in phases.items()} == {
        "accept.queue_wait": 1,
        "accept.execute": 1,
        f"{BACKWARD}.queue_wait": 1,
        f"{BACKWARD}.execute": 1,
        "optim_step.queue_wait": 1,
        "optim_step.execute": 1,
    }
    assert phases[f"{BACKWARD}.queue_wait"]["total_s"] >= 0.019
    assert phases[f"{BACKWARD}.execute"]["total_s"] >= 0.049
    assert step["mine_s"] >= 0.059
    assert step["overhead_s"] >= 0.019
    assert step["client_s"] >= 0.029
    parts = [step[name] for name in step if name.endswith("_s") and name != "wall_s"]
    assert sum(parts) == pytest.approx(step["wall_s"], abs=1e-5)
    assert 0.109 <= step["wall_s"] <= took
    assert answer["interval"]["complete"]


def test_a_batch_is_shared_by_its_commands_tokens(
    sidecar: SidecarProcess, timing: LoopTiming
) -> None:
    """Two clients' commands in one batch; a third waits for them, and knows that it did."""
    first = timing.command("a", BACKWARD, tokens=300)
    second = timing.command("b", BACKWARD, tokens=100)
    third = timing.command("c", BACKWARD)
    with first, second, third:
        with timing.execute([first, second]):
            time.sleep(0.02)
        with timing.execute(third):
            pass
    timing.close()
    a, b, c = (sidecar.timing(model) for model in "abc")
    name = f"{BACKWARD}.execute"
    assert a["phases"][name]["mean_batch"] == b["phases"][name]["mean_batch"] == 2
    assert a["shares"][BACKWARD] == pytest.approx(0.75 * a["phases"][name]["total_s"], abs=2e-6)
    assert b["shares"][BACKWARD] == pytest.approx(0.25 * b["phases"][name]["total_s"], abs=2e-6)
    assert c["waits"][BACKWARD]["neighbors_s"] >= 0.019


def test_a_save_is_captured_on_the_lane_and_written_beside_it(
    sidecar: SidecarProcess, timing: LoopTiming
) -> None:
    """The time in which nothing but the write goes on is ``persist_s``."""
    with timing.command("m", "save_weights") as save:
        with timing.capture(save):
            pass
        with timing.persist(save):
            time.sleep(0.02)
    timing.close()
    answer = sidecar.timing("m")
    assert set(answer["phases"]) == {
        "save_weights.queue_wait",
        "save_weights.capture",
        "save_weights.persist",
    }
    assert answer["step"]["persist_s"] >= 0.019


def test_a_lane_says_what_it_does_now(sidecar: SidecarProcess, timing: LoopTiming) -> None:
    """While the body runs; idle after it."""
    with timing.command("m", BACKWARD), timing.execute():
        health = sidecar.wait_for(lambda health: health["lanes"] != {})
        assert health["lanes"]["gpu"]["operation"] == BACKWARD
    with timing.command("m", "save_weights"), timing.persist(lane="sampler"):
        sidecar.wait_for(lambda health: set(health["lanes"]) == {"sampler"})
    sidecar.wait_for(lambda health: health["lanes"] == {})


def test_threads_that_submit_and_a_thread_that_runs(
    sidecar: SidecarProcess, timing: LoopTiming
) -> None:
    """A loop with a queue: each client's thread is in its command until its result is there, and
    one thread executes what there is in batches."""
    queue: list[tuple[Any, threading.Event]] = []
    changed = threading.Condition()

    def client(model: str) -> None:
        for _ in range(10):
            done = threading.Event()
            with timing.command(model, BACKWARD) as command:
                with changed:
                    queue.append((command, done))
                    changed.notify()
                assert done.wait(10)

    clients = [threading.Thread(target=client, args=(model,)) for model in "abcd"]
    for thread in clients:
        thread.start()
    ran = 0
    while ran < 40:
        with changed:
            assert changed.wait_for(lambda: bool(queue), 10)
            batch = [queue.pop(0) for _ in range(len(queue))]
        with timing.execute([command for command, _ in batch]):
            ran += len(batch)
        for _, done in batch:
            done.set()
    for thread in clients:
        thread.join()
    timing.close()
    for model in "abcd":
        answer = sidecar.timing(model)
        assert answer["phases"][f"{BACKWARD}.execute"]["count"] == 10
        assert answer["phases"][f"{BACKWARD}.queue_wait"]["count"] == 10
        assert answer["interval"]["complete"]


def test_the_documents_example_gives_its_figures(tmp_path: Path) -> None:
    """A process that runs it as it stands, beside a sidecar of its own: both clients' figures."""
    with start_sidecar(tmp_path) as sidecar:
        subprocess.run(
            [sys.executable, "-c", snippet("OBSERVER.md", "A loop written by hand")],
            env={**os.environ, "LILO_TIMING_SOCKET": str(sidecar.socket)},
            check=True,
            timeout=30,
        )
        alice, bob = sidecar.timing("alice"), sidecar.timing("bob")
    assert {name: phase["count"] for name, phase in alice["phases"].items()} == {
        "accept.queue_wait": 1,
        "accept.execute": 1,
        f"{BACKWARD}.queue_wait": 1,
        f"{BACKWARD}.execute": 1,
        "optim_step.queue_wait": 1,
        "optim_step.execute": 1,
        "save_weights.queue_wait": 1,
        "save_weights.capture": 1,
        "save_weights.persist": 1,
    }
    assert alice["phases"][f"{BACKWARD}.execute"]["mean_batch"] == 2
    assert alice["shares"][BACKWARD] == pytest.approx(3 * bob["shares"][BACKWARD], abs=1e-5)
    assert alice["step"]["persist_s"] >= 0.019
    assert bob["step"]["shared_batch_s"] >= 0.029
    assert (alice["interval"]["final"], bob["interval"]["final"]) == (False, True)
    assert alice["delivery"]["rejected"] == 0


# --- what the hook is told ------------------------------------------------------------------


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
