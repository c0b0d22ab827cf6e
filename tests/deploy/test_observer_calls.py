"""What the engine tells its observers, and that timing is always among them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lilo_engine_hook import Observers, TimingObserver, attach, wire
from lilo_local.engine import Operation
from support.local_engine import Recorder, data, running_engine, settled
from support.receiver import Receiver

pytestmark = pytest.mark.trio

BACKWARD = "forward_backward"


async def test_the_calls_of_one_command(tmp_path: Path, timing_socket: Receiver) -> None:
    """Each in its place, with what the Observer interface says."""
    async with running_engine(tmp_path) as running:
        recorder = running.recorder
        future = running.engine.create_model("m", {"rank": 2})
        await settled(future)
        await recorder.quiet()
        assert recorder.calls[0] == ("register_model", ("m", {"rank": 2}), {})
        assert recorder.methods() == [
            "register_model",
            "set_activity",
            "state",
            "span",
            "state",
            "set_activity",
        ]
        span, attrs = recorder.named("span")[0]
        assert span[:3] == (["m"], "accept", "gpu")
        assert attrs == {"n": 1, "ok": True}
        recorder.calls.clear()

        await settled(running.engine.submit("m", 1, BACKWARD, data(4)))
        await recorder.quiet()
        methods = recorder.methods()
        assert methods == [
            "begin",
            "set_activity",
            "state",
            "span",
            "finish",
            "state",
            "set_activity",
        ]
        operation = recorder.calls[0][1][0]
        assert isinstance(operation, Operation)
        assert (operation.request_id, operation.seq_id) == ("m:1", 1)
        assert recorder.calls[1] == ("set_activity", ("gpu", operation), {})
        assert recorder.calls[2] == ("state", (["m"], "executing:forward_backward"), {})
        span, attrs = recorder.named("span")[0]
        assert span[:3] == (["m"], BACKWARD, "gpu")
        assert span[3] <= span[4]
        assert attrs == {"request_ids": ["m:1"], "seq_ids": [1], "n": 1, "ok": True}
        assert recorder.calls[4] == ("finish", (operation, "done"), {})
        assert recorder.calls[5] == ("state", (["m"], "idle"), {})
        assert recorder.calls[6] == ("set_activity", ("gpu", None), {})
        await running.engine.unload("m")
        assert recorder.calls[-1] == ("forget_model", ("m",), {})


async def test_a_coalesced_batch_is_one_span_with_all_its_requests(
    tmp_path: Path, timing_socket: Receiver
) -> None:
    """``n`` counts the commands; request and sequence ids are in the order of the models."""
    async with running_engine(tmp_path) as running:
        for model in "ab":
            await running.model(model)
        running.gate.close_at("/forward_backward")
        first = running.engine.submit("a", 1, BACKWARD, data(4))
        await running.gate.arrived.wait()
        futures = [running.engine.submit(m, s, BACKWARD, data(4)) for m, s in [("a", 2), ("b", 1)]]
        running.gate.open_at("/forward_backward")
        for future in [first, *futures]:
            await settled(future)
        args, attrs = running.recorder.named("span")[-1]
        assert args[0] == ["b", "a"]
        assert attrs == {"request_ids": ["b:1", "a:2"], "seq_ids": [1, 2], "n": 2, "ok": True}


async def test_weights_are_captured_on_the_gpu_lane_and_persisted_on_their_own(
    tmp_path: Path, timing_socket: Receiver
) -> None:
    """Two spans with the same request; the command is finished after the second."""
    async with running_engine(tmp_path) as running:
        await running.model("m")
        for seq, kind, lane in (
            (1, "save_weights", "checkpoint"),
            (2, "save_weights_for_sampler", "sampler"),
        ):
            running.recorder.calls.clear()
            await settled(running.engine.submit("m", seq, kind, {"name": "x"}))
            assert running.recorder.spans() == [
                (["m"], f"capture:{kind}", "gpu"),
                (["m"], f"persist:{kind}", lane),
            ]
            for _, attrs in running.recorder.named("span"):
                assert attrs["request_ids"] == [f"m:{seq}"]
            methods = running.recorder.methods()
            assert methods.index("finish") > len(methods) - 1 - methods[::-1].index("span")
            activity = [args for args, _ in running.recorder.named("set_activity")]
            assert [a is None for name, a in activity if name == lane] == [False, True]


async def test_failures_are_timed(tmp_path: Path, timing_socket: Receiver) -> None:
    """The span says it failed, of executions, captures and persists alike; so does `finish`."""
    async with running_engine(tmp_path) as running:
        await running.model("m")
        await settled(running.engine.submit("m", 1, "optim_step", {}))
        (tmp_path / "m").write_text("in the way of a directory")
        saved = await settled(running.engine.submit("m", 2, "save_weights", {"name": "x"}))
        assert saved["error"] == "the weights could not be written: Not a directory"
        spans = [(args[1], attrs["ok"]) for args, attrs in running.recorder.named("span")]
        assert spans == [
            ("accept", True),
            ("optim_step", False),
            ("capture:save_weights", True),
            ("persist:save_weights", False),
        ]
        assert [args[1] for args, _ in running.recorder.named("finish")] == ["failed"] * 2


async def test_a_retry_begins_once(tmp_path: Path, timing_socket: Receiver) -> None:
    """It is told as a reuse, so its wait counts from the first submission."""
    async with running_engine(tmp_path) as running:
        await running.model("m")
        for _ in range(2):
            future = running.engine.submit("m", 1, BACKWARD, data(4))
        await settled(future)
        assert len(running.recorder.named("begin")) == 1
        assert running.recorder.named("reuse") == [(("m:1",), {})]


async def test_every_command_that_begins_is_finished(
    tmp_path: Path, timing_socket: Receiver
) -> None:
    """Those too that never ran, because their model was unloaded."""
    async with running_engine(tmp_path) as running:
        await running.model("m")
        running.engine.submit("m", 2, BACKWARD, data(4))
        running.engine.submit("m", 3, BACKWARD, data(4))
        await running.engine.unload("m")
        finished = [args[0].request_id for args, _ in running.recorder.named("finish")]
        assert finished == ["m:2", "m:3"]
        assert running.recorder.methods()[-1] == "forget_model"


def assigned(observer: Any) -> Callable[[Any], None]:
    return lambda engine: setattr(engine, "observer", observer)


@pytest.mark.parametrize(
    "change",
    [
        assigned(None),
        assigned(Recorder()),
        assigned(Observers()),
        assigned(Observers(Recorder(), None)),
        attach,
    ],
    ids=["None", "another", "an empty composite", "a composite", "attach"],
)
async def test_timing_stays_on(
    tmp_path: Path, timing_socket: Receiver, change: Callable[[Any], None]
) -> None:
    """Whatever is assigned to the engine's observer, the same timing observer goes on telling."""
    async with running_engine(tmp_path) as running:
        timing = running.engine.timing
        change(running.engine)
        assert running.engine.timing is timing
        await settled(running.engine.create_model("m"))
    assert [e.model for e in timing_socket.events if isinstance(e, wire.Register)] == ["m"]
    assert [hello.role for hello in timing_socket.hellos].count(wire.Role.ENGINE) == 1


async def test_an_assigned_observer_is_told_from_then_on(
    tmp_path: Path, timing_socket: Receiver
) -> None:
    """The new one hears everything, the old one nothing more."""
    async with running_engine(tmp_path) as running:
        late = Recorder()
        running.engine.observer = late
        await running.model("m")
        assert "span" in late.methods()
        assert not running.recorder.calls


async def test_an_observer_with_timing_of_its_own_replaces_the_engines(
    tmp_path: Path, timing_socket: Receiver
) -> None:
    """Two would report every command twice; the one before is closed."""
    async with running_engine(tmp_path) as running:
        before = running.engine.timing
        mine = TimingObserver()
        running.engine.observer = mine
        assert running.engine.timing is mine
        await running.model("m")
        before.register_model("after it was closed")
    assert [e.model for e in timing_socket.events if isinstance(e, wire.Register)] == ["m"]


async def test_no_payload_crosses_the_socket(tmp_path: Path, timing_socket: Receiver) -> None:
    """Nothing of what the events hold comes from a payload, nor from the model's specification."""
    async with running_engine(tmp_path) as running:
        await settled(running.engine.create_model("m", {"secret-note": "secret-value"}))
        payload = {**data(5), "note": "secret-value"}
        await settled(running.engine.submit("m", 1, BACKWARD, payload))
        await settled(running.engine.submit("m", 2, "save_weights", {"name": "secret-name"}))
    assert len(timing_socket.events) > 8
    assert "secret" not in repr(timing_socket.events)
