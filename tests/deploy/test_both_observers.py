"""The timing observer and the OTLP observer on one engine: each works whatever the other does."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lilo_engine_hook import Observers, TimingObserver, _producer, otlp
from lilo_engine_hook.otlp import OtlpObserver
from support.local_engine import RunningEngine, data, running_engine, settled
from support.otlp_receiver import OtlpReceiver, otlp_receiver
from support.sidecar import TIMEOUT, SidecarProcess, start_sidecar

pytestmark = pytest.mark.trio

STEPS = 3


@pytest.fixture
def sidecar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SidecarProcess]:
    """Where timing observers of this test report to."""
    with start_sidecar(tmp_path) as running:
        monkeypatch.setenv("LILO_TIMING_SOCKET", str(running.socket))
        monkeypatch.setattr(_producer, "FLUSH_TIMEOUT", TIMEOUT)  # a busy machine is no failure
        yield running


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> Iterator[OtlpReceiver]:
    """Where OTLP observers of this test export to."""
    with otlp_receiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        monkeypatch.setattr(otlp, "CLOSE_TIMEOUT", TIMEOUT)
        yield receiver


class BrokenTiming(TimingObserver):
    """Raises from every method that an engine calls."""

    def _fail(self, *args: Any, **attrs: Any) -> Any:
        raise RuntimeError("timing is broken")

    register_model = forget_model = begin = reuse = finish = _fail
    set_activity = state = span = _fail


class BrokenOtlp(OtlpObserver):
    """Raises from every method that an engine calls."""

    def _fail(self, *args: Any, **attrs: Any) -> Any:
        raise RuntimeError("tracing is broken")

    register_model = forget_model = begin = reuse = finish = _fail
    set_activity = state = span = close = _fail


async def work(running: RunningEngine, *observers: Any) -> None:
    """A model's life on an engine with these observers: steps, a save, and its end."""
    running.engine.observer = Observers(*observers)
    await running.model("m")
    for seq in range(1, STEPS + 1):
        step = running.engine.submit("m", seq, "forward_backward", data(4))
        assert (await settled(step))["state"] == "done"
    saved = running.engine.submit("m", STEPS + 1, "save_weights", {"name": "x"})
    assert (await settled(saved))["state"] == "done"
    await running.engine.unload("m")


def assert_timed(sidecar: SidecarProcess) -> None:
    timing = sidecar.timing("m")
    assert timing["phases"]["forward_backward.execute"]["count"] == STEPS
    assert timing["phases"]["save_weights.persist"]["count"] == 1
    assert timing["interval"]["complete"]


def assert_traced(traces: OtlpReceiver) -> None:
    commands = traces.commands()
    assert sorted(commands) == [f"m:{seq}" for seq in range(1, STEPS + 2)]
    assert not any(span.failed for span in traces.spans)
    batches = traces.lane("forward_backward")
    assert [batch.links for batch in batches] == [
        [commands[f"m:{seq}"].span_id] for seq in range(1, STEPS + 1)
    ]
    for name in ("capture:save_weights", "persist:save_weights"):
        assert [s.links for s in traces.lane(name)] == [[commands[f"m:{STEPS + 1}"].span_id]]


async def test_both_at_once(tmp_path: Path, sidecar: SidecarProcess, traces: OtlpReceiver) -> None:
    """A real sidecar and a real receiver hear of the same commands."""
    async with running_engine(tmp_path) as running:
        await work(running, TimingObserver(), OtlpObserver())
    assert_timed(sidecar)
    assert_traced(traces)


async def test_timing_goes_on_when_tracing_raises(
    tmp_path: Path, sidecar: SidecarProcess, traces: OtlpReceiver
) -> None:
    """Whichever is first."""
    async with running_engine(tmp_path) as running:
        broken = BrokenOtlp()
        await work(running, broken, TimingObserver())
    assert_timed(sidecar)
    OtlpObserver.close(broken)
    assert traces.spans == []


async def test_tracing_goes_on_when_timing_raises(
    tmp_path: Path, sidecar: SidecarProcess, traces: OtlpReceiver
) -> None:
    """Whichever is first."""
    async with running_engine(tmp_path) as running:
        await work(running, BrokenTiming(), OtlpObserver())
    assert_traced(traces)
    assert "forward_backward.execute" not in sidecar.timing("m")["phases"]


async def test_timing_goes_on_without_a_receiver_of_traces(
    tmp_path: Path, sidecar: SidecarProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody listens where the environment says."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        async with running_engine(tmp_path) as running:
            await work(running, OtlpObserver(), TimingObserver())
    assert_timed(sidecar)


async def test_tracing_goes_on_without_a_sidecar(
    tmp_path: Path, traces: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody listens at the socket."""
    monkeypatch.setenv("LILO_TIMING_SOCKET", str(tmp_path / "none.sock"))
    async with running_engine(tmp_path) as running:
        await work(running, TimingObserver(), OtlpObserver())
    assert_traced(traces)
