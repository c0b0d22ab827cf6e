"""What the observer reports."""

from __future__ import annotations

import enum
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lilo_engine_hook import TimingObserver, wire
from lilo_engine_hook._queue import MAX_EVENTS
from support.logs import logged
from support.operations import Operation
from support.receiver import Receiver, receiver


class Kind(enum.Enum):
    """An engine's own kinds."""

    FORWARD_BACKWARD = "forward_backward"


@pytest.fixture
def far(tmp_path: Path) -> Iterator[Receiver]:
    with receiver(tmp_path / "timing.sock") as far_end:
        yield far_end


@pytest.fixture
def observer(far: Receiver) -> Iterator[TimingObserver]:
    timing = TimingObserver(far.path)
    yield timing
    timing.close()


def test_every_call_arrives_as_its_event(far: Receiver, observer: TimingObserver) -> None:
    """Each method of the Observer interface, with its fields, in the order of the calls."""
    before = time.time()
    operation = Operation("m", 3, Kind.FORWARD_BACKWARD)
    observer.register_model("m", {"rank": 8})
    observer.begin(operation)
    observer.reuse("m:3")
    observer.set_activity("gpu", operation)
    observer.state(["m"], "executing:forward_backward", detail="more")
    observer.span(
        ["m"], "forward_backward", "gpu", 10.0, 12.5,
        request_ids=["m:3"], seq_ids=[3], n=1, ok=True, tokens=[640], other=object(),
    )  # fmt: skip
    observer.span("m", "persist:save_weights", "checkpoint", 10.0)
    observer.set_activity("gpu", None)
    observer.state(["m", "n"], "idle")
    observer.state({f"m{number}": 0 for number in range(5000)}.keys(), "idle")  # type: ignore[arg-type]  # nobody looks
    observer.finish(operation, "done")
    observer.backend_ready()
    observer.serving_ready()
    observer.forget_model("m")
    far.wait_for(lambda: len(far.events) == 13)
    after = time.time()

    def at(index: int) -> float:
        t = far.events[index][0]
        assert isinstance(t, float)
        assert before <= t <= after, "stamped by the call"
        return t

    late = far.events[5]
    assert isinstance(late, wire.Span)
    assert before <= late.t1 <= after, "no t1 means now"
    assert far.events == [
        wire.Register(at(0), "m"),
        wire.Begin(at(1), "m", "m:3", 3, "forward_backward", None),
        wire.Activity(at(2), "gpu", "m", "m:3", "forward_backward"),
        wire.State(at(3), ("m",), "executing:forward_backward"),
        wire.Span(
            ("m",), "forward_backward", "gpu", 10.0, 12.5, ("m:3",), (3,), 1, True, (640.0,)
        ),
        wire.Span(
            ("m",), "persist:save_weights", "checkpoint", 10.0, late.t1, *[None] * 5
        ),
        wire.Activity(at(6), "gpu", None, None, None),
        wire.State(at(7), None, "idle"),
        wire.State(at(8), None, "idle"),
        wire.Finish(at(9), "m", "m:3"),
        wire.Gauge(at(10), "backend_ready"),
        wire.Gauge(at(11), "serving_ready"),
        wire.Forget(at(12), "m"),
    ]  # fmt: skip
    assert (far.dropped, far.rejected) == (0, 0)


def test_hello_tells_who_this_is(far: Receiver, observer: TimingObserver) -> None:
    """The process, its boot id, and when the kernel really started it."""
    far.wait_for(lambda: bool(far.hellos))
    (hello,) = far.hellos
    began = time.time() - float(Path("/proc/uptime").read_text().split()[0])
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    started = began + ticks / os.sysconf("SC_CLK_TCK")
    assert hello.started == pytest.approx(started, abs=1.0)
    assert (hello.pid, hello.parent_boot_id, hello.role) == (os.getpid(), None, "engine")
    assert len(hello.boot_id) == 16


def test_lists_are_taken_as_they_are_at_the_call(far: Receiver, observer: TimingObserver) -> None:
    """The engine may go on changing its own lists and operations."""
    models, ids, operation = ["a"], ["a:0"], Operation("a")
    observer.begin(operation)
    observer.span(models, "forward_backward", "gpu", 1.0, 2.0, request_ids=ids)
    models.append("b")
    ids[0] = "changed"
    operation.model_id = "changed"
    far.wait_for(lambda: len(far.events) == 2)
    first, second = far.events
    assert isinstance(first, wire.Begin)
    assert isinstance(second, wire.Span)
    assert (first.model, second.models, second.request_ids) == ("a", ("a",), ("a:0",))


def test_scalars_of_other_libraries_are_understood(far: Receiver, observer: TimingObserver) -> None:
    """numpy's scalars and subclasses of str are what they stand for."""

    class ModelId(str):
        """A string with a name."""

    t0: Any = np.float32(1.5)
    observer.span(
        ModelId("m"), ModelId("forward"), "gpu", t0, np.float64(2.5),
        seq_ids=[np.int64(4)], n=np.int32(1),  # type: ignore[arg-type, list-item]
    )  # fmt: skip
    far.wait_for(lambda: len(far.events) == 1)
    assert far.events == [wire.Span(("m",), "forward", "gpu", 1.5, 2.5, None, (4,), 1, None, None)]


def test_many_threads_lose_nothing(far: Receiver, observer: TimingObserver) -> None:
    """Calls from any thread: each is delivered once, in its thread's order."""

    def work(thread: int) -> None:
        for seq in range(2000):
            observer.begin(Operation(f"m{thread}", seq))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    far.wait_for(lambda: len(far.events) == 16_000)
    by_model: dict[str, list[int | None]] = {}
    for event in far.events:
        assert isinstance(event, wire.Begin)
        by_model.setdefault(event.model, []).append(event.seq)
    assert all(seqs == list(range(2000)) for seqs in by_model.values())


@pytest.mark.usefixtures("patient")
def test_calls_after_close_are_ignored(far: Receiver) -> None:
    """A closed observer stays harmless, and closing again is no error."""
    observer = TimingObserver(far.path)
    observer.register_model("m")
    observer.close()
    assert len(far.events) == 1
    observer.register_model("late")
    observer.close()
    assert len(far.events) == 1
    assert not observer._queue.items


def test_payload_stays_in_the_trainer(far: Receiver, observer: TimingObserver) -> None:
    """No part of a payload or of a model's spec is in what crosses the socket."""
    secret = "prompt-of-a-customer"
    observer.register_model("m", {"path": secret})
    observer.begin(Operation("m", payload={"data": secret}))
    observer.span("m", "forward", "gpu", 1.0, 2.0, prompt=secret)
    far.wait_for(lambda: len(far.events) == 3)
    assert secret not in repr(far.batches) + repr(far.hellos)


@pytest.mark.usefixtures("patient")
def test_socket_path_comes_from_the_environment(
    far: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an argument, LILO_TIMING_SOCKET says where the sidecar is."""
    monkeypatch.setenv("LILO_TIMING_SOCKET", str(far.path))
    observer = TimingObserver()
    observer.register_model("m")
    observer.close()
    assert len(far.events) == 1


def test_path_over_the_limit_makes_a_harmless_observer(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """A path longer than a socket's may be: one warning that names it, and calls that do
    nothing."""
    path = f"/tmp/{'d' * 150}/timing.sock"
    observer = TimingObserver(path)
    for _ in range(3):
        observer.register_model("m")
    observer.close()
    (record,) = logged(caplog)
    assert path in record.getMessage()
    assert "the system allows 107" in record.getMessage()
    assert observer._queue.dropped.value() == 3


@pytest.mark.usefixtures("patient")
def test_secondary_ranks_do_not_report(far: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ranks run the same commands: only rank 0's are counted."""
    observers = []
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        observers.append(TimingObserver(far.path))
    for observer in observers:
        observer.span("m", "forward_backward", "gpu", 1.0, 2.0)
        observer.close()
    assert len(far.events) == 1


def test_hook_bound_is_the_documented_one() -> None:
    """The contract's figure."""
    assert MAX_EVENTS == 65_536
