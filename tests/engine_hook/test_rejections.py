"""Nothing that the engine passes can hurt it: what makes no event is counted."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lilo_engine_hook import TimingObserver, wire
from support.logs import logged
from support.operations import Operation
from support.receiver import Receiver, receiver


@pytest.fixture
def far(tmp_path: Path) -> Iterator[Receiver]:
    with receiver(tmp_path / "timing.sock") as far_end:
        yield far_end


@pytest.fixture
def observer(far: Receiver) -> Iterator[TimingObserver]:
    timing = TimingObserver(far.path)
    yield timing
    timing.close()


class Hostile:
    """Raises at any touch."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(f"touched {name}")

    def __len__(self) -> int:
        raise RuntimeError("touched")

    def __hash__(self) -> int:
        raise RuntimeError("touched")


class Disguised:
    """Fails even when its class is asked for."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise RuntimeError("touched")


def _nested(depth: int) -> Any:
    value: Any = "id"
    for _ in range(depth):
        value = [value] * 10
    return value


_LONG = "x" * 10_000_000
_BAD_CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("register_model", (None,), {}),
    ("register_model", ("",), {}),
    ("register_model", (_LONG,), {}),
    ("register_model", ("m\ud800",), {}),
    ("register_model", (["unhashable"],), {}),
    ("forget_model", (7,), {}),
    ("forget_model", (Hostile(),), {}),
    ("begin", (None,), {}),
    ("begin", (Hostile(),), {}),
    ("begin", (Operation("m", kind=Hostile()),), {}),
    ("begin", (Operation("m", seq_id=-1),), {}),
    ("begin", (Operation("m", seq_id=2**80),), {}),
    ("begin", (Operation(_LONG),), {}),
    ("begin", (Operation("m", kind=""),), {}),
    ("reuse", (None,), {}),
    ("reuse", (Disguised(),), {}),
    ("span", (Disguised(), "x", "gpu", 1.0, 2.0), {}),
    ("span", (["m"], "x", "gpu", 1.0, 2.0), {"request_ids": [_nested(12)]}),
    ("register_model", (_nested(12),), {}),
    ("finish", (None, "done"), {}),
    ("set_activity", (None, None), {}),
    ("set_activity", ("gpu", Hostile()), {}),
    ("state", (None, "executing:x"), {}),
    ("state", (["m"], None), {}),
    ("state", ([Hostile()], "executing:x"), {}),
    ("span", (None, "x", "gpu", 1.0, 2.0), {}),
    ("span", ([], "x", "gpu", 1.0, 2.0), {}),
    ("span", ({"m"}, "x", "gpu", 1.0, 2.0), {}),
    ("span", (iter(int, 1), "x", "gpu", 1.0, 2.0), {}),
    ("span", (["m"] * 2_000_000, "x", "gpu", 1.0, 2.0), {}),
    ("span", ([["m"]], "x", "gpu", 1.0, 2.0), {}),
    ("span", (["m"], None, "gpu", 1.0, 2.0), {}),
    ("span", (["m"], "x" * 81, "gpu", 1.0, 2.0), {}),
    ("span", (["m"], "x", 5, 1.0, 2.0), {}),
    ("span", (["m"], "x", "gpu", None, 2.0), {}),
    ("span", (["m"], "x", "gpu", float("nan"), 2.0), {}),
    ("span", (["m"], "x", "gpu", 1.0, float("inf")), {}),
    ("span", (["m"], "x", "gpu", 1.0, 10**400), {}),
    ("span", (["m"], "x", "gpu", "1.0", 2.0), {}),
    ("span", (["m"], "x", "gpu", True, 2.0), {}),
    ("span", (["m"], "x", "gpu", 1.0, 2.0), {"request_ids": "m:0"}),
    ("span", (["m"], "x", "gpu", 1.0, 2.0), {"request_ids": [None]}),
    ("span", (["m"], "x", "gpu", 1.0, 2.0), {"request_ids": ["i"] * 1025}),
    ("span", (["m"], "x", "gpu", 1.0, 2.0), {"request_ids": ["\u20ac" * 320] * 1024}),
    ("span", (["m"], "x", "gpu", 1.0, 2.0), {"seq_ids": ["0"]}),
    ("span", (["m"], "x", "gpu", 1.0, 2.0), {"n": "many"}),
    ("span", (["m"], "x", "gpu", 1.0, 2.0), {"ok": "yes"}),
    ("span", (["m"], "x", "gpu", 1.0, 2.0), {"tokens": [float("nan")]}),
]


def test_bad_calls_are_counted_and_never_raise(
    far: Receiver, observer: TimingObserver, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the engine passes, no call raises; each bad one is counted as rejected, the
    count reaches the sidecar, the log has one line, and good events beside them arrive."""
    for method, arguments, attributes in _BAD_CALLS:
        observer.register_model("good")
        getattr(observer, method)(*arguments, **attributes)
    far.wait_for(lambda: far.rejected == len(_BAD_CALLS))
    far.wait_for(lambda: len(far.events) == len(_BAD_CALLS))
    assert all(isinstance(event, wire.Register) for event in far.events)
    warnings = [r for r in logged(caplog) if r.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "an observer call was rejected" in warnings[0].getMessage()
    assert len(warnings[0].getMessage()) < 500


def test_nothing_is_logged_on_the_engines_thread(
    far: Receiver, observer: TimingObserver, caplog: pytest.LogCaptureFixture
) -> None:
    """A log handler may block: what goes wrong is said by the hook's own thread."""

    class SilentError(Exception):
        """Does not even say what it is."""

        def __str__(self) -> str:
            raise RuntimeError

    class Operationless:
        """Has none of an operation's attributes."""

        def __getattr__(self, name: str) -> Any:
            raise SilentError

    observer.begin(Operationless())
    observer.span(None, "x", "gpu", 1.0, 2.0)  # type: ignore[arg-type]
    observer.reuse(None)  # type: ignore[arg-type]
    observer.register_model("m")
    far.wait_for(lambda: far.rejected == 3 and len(far.events) == 1)
    (record,) = logged(caplog)
    assert record.threadName == "lilo-timing"


def test_an_error_that_cannot_be_changed_is_counted_like_any(
    far: Receiver, observer: TimingObserver
) -> None:
    """A frozen dataclass refuses attributes: neither the engine's thread nor the hook's stumbles
    over that, and what came with it arrives."""

    @dataclasses.dataclass(frozen=True)
    class FrozenError(Exception):
        reason: str

    class Broken:
        """Of an operation, or of its kind once the hook looks at it."""

        @property
        def model_id(self) -> Any:
            raise FrozenError("on the engine's thread")

        @property  # type: ignore[misc]
        def __class__(self) -> Any:
            raise FrozenError("on the hook's thread")

    for number in range(50):
        observer.register_model(f"m{number}")
    observer.begin(Operation("m", kind=Broken()))
    observer.begin(Broken())  # type: ignore[arg-type]
    far.wait_for(lambda: far.rejected == 2 and len(far.events) == 50)


def test_device_tensors_are_refused_unread(far: Receiver, observer: TimingObserver) -> None:
    """Reading a number off a device synchronises it: such an object is rejected, not read."""

    class DeviceScalar:
        """Counts what would be a synchronisation."""

        reads = 0

        def __float__(self) -> float:
            type(self).reads += 1
            return 1.0

        __index__ = __int__ = __bool__ = __float__

    observer.span("m", "x", "gpu", DeviceScalar(), 2.0)  # type: ignore[arg-type]
    observer.span("m", "x", "gpu", 1.0, DeviceScalar(), n=DeviceScalar())  # type: ignore[arg-type]
    far.wait_for(lambda: far.rejected == 2)
    assert DeviceScalar.reads == 0


def test_how_a_command_ended_stays_in_the_trainer(far: Receiver, observer: TimingObserver) -> None:
    """The engine's word for it may be anything, the text of an error included."""
    for state in ("done", None, "CUDA out of memory " * 50, object()):
        observer.finish(Operation("m"), state)
    far.wait_for(lambda: len(far.events) == 4)
    assert far.rejected == 0
    assert "CUDA" not in repr(far.batches)


def test_names_without_end_are_rejected(far: Receiver, observer: TimingObserver) -> None:
    """An engine that puts ids into span names is told so; the names it had go on working."""
    for number in range(wire.MAX_NAMES + 50):
        observer.span("m", f"step-{number}", "gpu", 1.0, 2.0)
    observer.span("m", "step-0", "gpu", 1.0, 2.0)
    far.wait_for(lambda: far.rejected > 0 and len(far.events) + far.rejected == 307)
    assert far.rejected == 51, "the lane is a name, too"


@pytest.mark.parametrize("path", ["/tmp/\ud800", "/tmp/\0", 5])
def test_path_that_is_none_makes_a_harmless_observer(
    path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing raises for a path that cannot be one; the log says so."""
    observer = TimingObserver(path)
    observer.register_model("m")
    observer.close()
    assert "lilo timing" in caplog.text


def test_broken_clock_is_counted(far: Receiver) -> None:
    """A clock that raises does not raise into the engine."""

    def clock() -> float:
        raise OSError("no clock")

    observer = TimingObserver(far.path, clock=clock)
    observer.register_model("m")
    observer.forget_model("m")
    observer.begin(Operation("m"))
    observer.backend_ready()
    far.wait_for(lambda: far.rejected == 4)
    observer.close()
