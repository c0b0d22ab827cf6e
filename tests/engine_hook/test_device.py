"""Device time: on a CPU as it is, and on a device that is played by a stand-in for torch.cuda,
since the machine of a test seldom has one."""

from __future__ import annotations

import enum
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lilo_engine_hook import device as device_module
from lilo_engine_hook import wire
from lilo_engine_hook.device import DeviceTimer
from support.receiver import Receiver, receiver


class Stream:
    """A queue of device work with a clock of its own; `finish` lets the device catch up."""

    def __init__(self) -> None:
        self.clock = 0.0
        self.reached = 0.0

    def work(self, seconds: float) -> None:
        self.clock += seconds

    def finish(self) -> None:
        self.reached = self.clock


class Cuda(types.ModuleType):
    """What the timer uses of torch.cuda, and a trap for what it must not."""

    def __init__(self) -> None:
        super().__init__("torch.cuda")
        self.stream = Stream()
        self.initialized = True
        self.broken = False
        self.capturing = False
        cuda = self

        class Event:
            def __init__(self, enable_timing: bool = False) -> None:
                assert enable_timing
                if cuda.broken:
                    raise RuntimeError("CUDA error: device-side assert triggered")

            def record(self, stream: Stream) -> None:
                self.stream, self.at = stream, stream.clock

            def query(self) -> bool:
                return self.stream.reached >= self.at

            def elapsed_time(self, later: Event) -> float:
                assert later.query(), "would wait for the device"
                return (later.at - self.at) * 1000

            def synchronize(self) -> None:
                raise AssertionError("the timer synchronised")

        self.Event = Event

    def is_initialized(self) -> bool:
        return self.initialized

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    def current_stream(self) -> Stream:
        return self.stream

    def synchronize(self) -> None:
        raise AssertionError("the timer synchronised")


@pytest.fixture
def far(tmp_path: Path) -> Iterator[Receiver]:
    with receiver(tmp_path / "timing.sock") as far_end:
        yield far_end


@pytest.fixture
def timer(far: Receiver) -> Iterator[DeviceTimer]:
    timing = DeviceTimer(far.path)
    yield timing
    timing.close()


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    torch: Any = types.ModuleType("torch")
    torch.cuda = Cuda()
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch.cuda", torch.cuda)
    return torch.cuda  # type: ignore[no-any-return]


def spans(far: Receiver) -> dict[str, float]:
    """Seconds by span name."""
    return {e.name: round(e.t1 - e.t0, 6) for e in far.events if isinstance(e, wire.Span)}


def test_without_torch_it_is_the_threads_time(far: Receiver, timer: DeviceTimer) -> None:
    """In a process without torch a span is the wall time of its body, for a backend."""
    gate = threading.Event()
    with timer.span(["a", "b"], "forward_backward"):
        gate.wait(0.05)
    far.wait_for(lambda: len(far.events) == 1)
    (event,) = far.events
    assert isinstance(event, wire.Span)
    assert (event.models, event.name, event.lane) == (
        ("a", "b"),
        "device:forward_backward",
        "device",
    )
    assert event.t1 - event.t0 >= 0.05
    assert event.ok is True
    assert far.hellos[0].role == "backend"


def test_torch_is_never_imported_by_the_timer() -> None:
    """A process that has not loaded torch does not load it for timing."""
    code = """
import sys
from lilo_engine_hook.device import DeviceTimer
timer = DeviceTimer("/tmp/none/timing.sock")
with timer.span("m", "x"):
    pass
assert not [name for name in sys.modules if name.startswith("torch")]
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.usefixtures("patient")
def test_device_time_is_reported_when_the_device_is_done(
    far: Receiver, timer: DeviceTimer, cuda: Cuda
) -> None:
    """The span is what the device took, reported once it is through, without waiting for it:
    neither the caller nor the hook synchronises."""
    with timer.span("m", "forward_backward"):
        cuda.stream.work(2.5)
    with timer.span("m", "optim_step"):
        cuda.stream.work(0.5)
    # A tick of the hook passes in which the device is not there yet.
    probe = DeviceTimer(far.path)
    cuda.initialized = False
    with probe.span("m", "probe"):
        pass
    probe.close()
    assert spans(far).keys() == {"device:probe"}
    cuda.stream.finish()
    far.wait_for(lambda: len(far.events) == 3)
    assert spans(far)["device:forward_backward"] == 2.5
    assert spans(far)["device:optim_step"] == 0.5


def test_nested_and_overlapping_spans_on_several_streams(
    far: Receiver, timer: DeviceTimer, cuda: Cuda
) -> None:
    """Each span stands for itself, on the stream that was current when it began."""
    first, second = Stream(), Stream()
    cuda.stream = first
    with timer.span("m", "outer"):
        first.work(1.0)
        with timer.span("m", "inner"):
            first.work(2.0)
        cuda.stream = second
        with timer.span("m", "elsewhere"):
            second.work(4.0)
        first.work(8.0)
    second.finish()
    far.wait_for(lambda: len(far.events) == 1)
    assert spans(far) == {"device:elsewhere": 4.0}
    first.finish()
    far.wait_for(lambda: len(far.events) == 3)
    assert spans(far)["device:outer"] == 11.0
    assert spans(far)["device:inner"] == 2.0


def test_failing_body_is_recorded_and_passes_through(
    far: Receiver, timer: DeviceTimer, cuda: Cuda
) -> None:
    """The trainer's own exception reaches the trainer, and the span says that it failed."""

    def body() -> None:
        with timer.span("m", "forward"):
            cuda.stream.work(1.0)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        body()
    cuda.stream.finish()
    far.wait_for(lambda: len(far.events) == 1)
    (event,) = far.events
    assert isinstance(event, wire.Span)
    assert event.ok is False


def test_broken_device_is_counted_and_not_raised(
    far: Receiver, timer: DeviceTimer, cuda: Cuda
) -> None:
    """When events cannot be made, the body runs all the same, each such call is counted once,
    and no time of the host passes for the device's."""
    cuda.broken = True
    ran = []
    with timer.span("m", "forward"):
        ran.append(True)
    assert ran
    far.wait_for(lambda: far.rejected == 1)
    with timer.span(object(), "forward"):  # type: ignore[arg-type]
        pass
    cuda.broken = False
    with timer.span("m", "forward"):
        cuda.broken = True
    cuda.stream.finish()
    far.wait_for(lambda: far.rejected == 3)
    cuda.broken, cuda.capturing = False, True
    with timer.span("m", "forward"):
        pass
    far.wait_for(lambda: far.rejected == 4)
    timer.close()
    assert far.events == []


def test_kinds_are_words(far: Receiver, timer: DeviceTimer) -> None:
    """An enum's kind is its value, as in the engine's own spans; what is no word is rejected,
    whatever it does when it is looked at."""

    class Kind(str, enum.Enum):  # noqa: UP042 - engines have such, whose str() is another
        FORWARD = "forward"

    class Evil:
        def __str__(self) -> str:
            raise RuntimeError("touched")

    for kind in (Kind.FORWARD, 5, None, b"forward", Evil()):
        with timer.span("m", kind):
            pass
    far.wait_for(lambda: far.rejected == 4 and len(far.events) == 1)
    assert spans(far).keys() == {"device:forward"}


def test_models_are_taken_as_they_are_when_the_span_begins(
    far: Receiver, timer: DeviceTimer, cuda: Cuda
) -> None:
    """The caller may go on changing its list."""
    models = ["a"]
    with timer.span(models, "forward"):
        models[0] = "b"
    models.append("c")
    cuda.stream.finish()
    far.wait_for(lambda: len(far.events) == 1)
    (event,) = far.events
    assert isinstance(event, wire.Span)
    assert event.models == ("a",)


def test_timer_that_does_not_report_holds_nothing(
    far: Receiver, cuda: Cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank that does not report, and a closed timer, keep no device events."""
    monkeypatch.setenv("RANK", "1")
    secondary = DeviceTimer(far.path)
    monkeypatch.delenv("RANK")
    closed = DeviceTimer(far.path)
    closed.close()
    for timer in (secondary, closed):
        with timer.span("m", "forward"):
            cuda.stream.work(1.0)
        assert not timer._running
        assert timer._queue.dropped.value() == 1


def test_spans_the_device_does_not_reach_are_bounded(
    far: Receiver, timer: DeviceTimer, cuda: Cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device that hangs holds a bounded number of spans; more are dropped and counted."""
    monkeypatch.setattr(device_module, "MAX_UNRESOLVED", 10)
    for _ in range(15):
        with timer.span("m", "forward"):
            cuda.stream.work(1.0)
    far.wait_for(lambda: far.dropped >= 4)
    dropped = far.dropped
    cuda.stream.finish()
    far.wait_for(lambda: len(far.events) + far.dropped == 15)
    assert 4 <= dropped <= 5


@pytest.mark.usefixtures("patient")
def test_close_waits_for_the_device(far: Receiver, cuda: Cuda) -> None:
    """What the device finishes within the flush is delivered by `close`."""
    timer = DeviceTimer(far.path)
    with timer.span("m", "forward"):
        cuda.stream.work(1.0)
    threading.Timer(0.1, cuda.stream.finish).start()
    timer.close()
    assert spans(far) == {"device:forward": 1.0}
