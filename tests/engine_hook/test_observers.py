"""Several observers side by side, and attaching to an engine."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lilo_engine_hook import Observers, TimingObserver, attach, find_timing, with_timing
from support.logs import logged


class Recorder:
    """Notes each call it gets."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **attrs: self.calls.append((name, args, attrs))


class Broken:
    """Raises from every method there is."""

    def __getattr__(self, name: str) -> Any:
        def fail(*args: object, **attrs: object) -> None:
            raise RuntimeError(f"{name} is broken")

        return fail


class Engine:
    """An engine with the one attribute that attaching needs."""

    def __init__(self, observer: Any = None) -> None:
        self.observer = observer


@pytest.fixture
def timing(tmp_path: Path) -> Iterator[TimingObserver]:
    observer = TimingObserver(tmp_path / "none.sock")
    yield observer
    observer.close()


_CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("register_model", ("m", {"rank": 4}), {}),
    ("begin", ("operation",), {}),
    ("reuse", ("m:0",), {}),
    ("set_activity", ("gpu", None), {}),
    ("state", (["m"], "executing:x"), {"detail": 1}),
    ("span", (["m"], "x", "gpu", 1.0, 2.0), {"request_ids": ["m:0"]}),
    ("finish", ("operation", "done"), {}),
    ("forget_model", ("m",), {}),
    ("close", (), {}),
]


def test_every_call_reaches_every_observer_in_order() -> None:
    """The whole interface is fanned out, arguments unchanged."""
    first, second = Recorder(), Recorder()
    both = Observers(first, None, second)
    for method, args, attrs in _CALLS:
        getattr(both, method)(*args, **attrs)
    assert first.calls == second.calls == _CALLS


def test_one_that_raises_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """Neither the other observers nor the engine feel it; each method's first failure is a
    warning with its traceback, the rest is quiet."""
    good = Recorder()
    both = Observers(Broken(), good, object())
    for _ in range(3):
        for method, args, attrs in _CALLS:
            getattr(both, method)(*args, **attrs)
    assert good.calls == _CALLS * 3
    warnings = [r for r in logged(caplog) if r.levelno == logging.WARNING]
    assert len(warnings) == 2 * len(_CALLS)
    assert all(record.exc_info for record in warnings)
    assert "observer Broken failed in begin" in caplog.text


def test_wrong_arguments_do_not_reach_the_engine(timing: TimingObserver) -> None:
    """A call with arguments the interface does not have fails inside the fan-out."""
    good = Recorder()
    Observers(timing, good).span("m", "x", "gpu", 1.0, 2.0, t1_unknown=object())
    Observers(timing, good).state("m", "idle", model_count=3)
    assert len(good.calls) == 2


def test_attach_keeps_the_observer_that_is_there(tmp_path: Path) -> None:
    """Attaching composes; attaching again changes nothing and returns the same observer."""
    recorder = Recorder()
    engine = Engine(recorder)
    timing = attach(engine, tmp_path / "none.sock")
    try:
        assert isinstance(engine.observer, Observers)
        assert engine.observer.observers == (recorder, timing)
        composed = engine.observer
        assert attach(engine) is timing
        assert engine.observer is composed
    finally:
        timing.close()


@pytest.mark.parametrize("empty", [Engine(), type("Bare", (), {})()])
def test_attach_to_an_engine_without_observer(empty: Any, tmp_path: Path) -> None:
    """No observer, or no such attribute yet: the timing observer alone, inside an Observers."""
    timing = attach(empty, tmp_path / "none.sock")
    timing.close()
    assert empty.observer.observers == (timing,)


def test_timing_is_found_wherever_it_is(timing: TimingObserver) -> None:
    """Alone, in a group, and in a group within a group; never a second one beside it."""
    nested = Observers(Recorder(), Observers(timing))
    assert find_timing(timing) is timing
    assert find_timing(nested) is timing
    assert find_timing(Observers(Recorder())) is None
    assert find_timing(None) is None
    other = TimingObserver("/tmp/" + "d" * 200)
    assert with_timing(nested, other) is nested
    assert with_timing(timing, other).observers == (timing,)
    assert with_timing(None, timing).observers == (timing,)
