"""The engine's semantics, on the real torch backend: order, coalescing, futures, persistence."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import trio

from lilo_local.engine import futures as futures_module
from lilo_local.engine.errors import (
    BusyError,
    ConflictError,
    InvalidOperationError,
    UnknownModelError,
    UnknownRequestError,
)
from lilo_local.engine.scheduler import MAX_QUEUED
from support.local_engine import data, running_engine, settled

pytestmark = [pytest.mark.trio, pytest.mark.usefixtures("timing_socket")]

BACKWARD = "forward_backward"


async def test_commands_that_arrive_out_of_order_run_in_order(tmp_path: Path) -> None:
    """The optimizer step that was submitted first finds the gradient of the pass before it."""
    async with running_engine(tmp_path) as running:
        await running.model("m")
        step = running.engine.submit("m", 2, "optim_step", {})
        backward = running.engine.submit("m", 1, BACKWARD, data(4))
        assert (await settled(step))["result"] == {"step": 1}
        assert (await settled(backward))["result"]["tokens"] == 4


async def test_commands_of_several_models_run_in_one_pass(tmp_path: Path) -> None:
    """What waits while the lane is busy is coalesced, and each gets its own result."""
    async with running_engine(tmp_path) as running:
        for model in "abc":
            await running.model(model)
        running.gate.close_at("/forward_backward")
        first = running.engine.submit("a", 1, BACKWARD, data(4))
        await running.gate.arrived.wait()
        waiting = [running.engine.submit(m, s, BACKWARD, data(3)) for m, s in [("a", 2), ("b", 1)]]
        waiting.append(running.engine.submit("c", 1, BACKWARD, data(5, 6)))
        running.gate.open_at("/forward_backward")
        results = [await settled(future) for future in [first, *waiting]]
        assert [result["result"]["tokens"] for result in results] == [4, 3, 3, 11]
        assert running.gate.requests.count("/forward_backward") == 2
        models, name, lane = running.recorder.spans()[-1]
        assert (sorted(models), name, lane) == (["a", "b", "c"], BACKWARD, "gpu")


async def test_the_token_budget_bounds_a_pass(tmp_path: Path) -> None:
    """Commands beyond it run in the next pass."""
    async with running_engine(tmp_path, token_budget=8) as running:
        for model in "abc":
            await running.model(model)
        running.gate.close_at("/forward_backward")
        futures = [running.engine.submit("a", 1, BACKWARD, data(4))]
        await running.gate.arrived.wait()
        futures += [running.engine.submit(m, s, BACKWARD, data(4)) for m, s in [("b", 1), ("c", 1)]]
        futures.append(running.engine.submit("a", 2, BACKWARD, data(4)))
        running.gate.open_at("/forward_backward")
        for future in futures:
            await settled(future)
        batches = [
            sorted(models) for models, name, _ in running.recorder.spans() if name == BACKWARD
        ]
        assert batches == [["a"], ["b", "c"], ["a"]]


async def test_a_failure_is_reported_in_the_future_and_the_lane_goes_on(tmp_path: Path) -> None:
    """The client reads why; later commands run."""
    async with running_engine(tmp_path) as running:
        await running.model("m")
        failed = await settled(running.engine.submit("m", 1, "optim_step", {}))
        assert failed["state"] == "failed"
        assert failed["error"] == "m has no gradient; call forward_backward first"
        backward = running.engine.submit("m", 2, BACKWARD, data(4))
        assert (await settled(backward))["state"] == "done"


async def test_a_repeated_submission_gets_the_future_it_has(tmp_path: Path) -> None:
    """Whether it still runs or has ended; and the command runs once."""
    async with running_engine(tmp_path) as running:
        await running.model("m")
        first = running.engine.submit("m", 1, BACKWARD, data(4))
        assert running.engine.submit("m", 1, BACKWARD, data(4)) is first
        await settled(first)
        assert running.engine.submit("m", 1, BACKWARD, data(4)) is first
        assert running.gate.requests.count("/forward_backward") == 1
        assert running.recorder.named("reuse") == [(("m:1",), {})] * 2
        with pytest.raises(ConflictError, match="m:1 is a forward_backward, not a optim_step"):
            running.engine.submit("m", 1, "optim_step", {})


async def test_weights_are_written_beside_later_work(tmp_path: Path) -> None:
    """While a checkpoint is being written the model trains on, and a sampler's weights are
    written; a second checkpoint waits its turn without holding up other models."""
    async with running_engine(tmp_path) as running:
        for model in "ab":
            await running.model(model)
        running.gate.close_at("/persist")
        first = running.engine.submit("a", 1, "save_weights", {"name": "one"})
        await running.gate.arrived.wait()
        second = running.engine.submit("b", 1, "save_weights", {"name": "two"})
        assert (await settled(running.engine.submit("a", 2, BACKWARD, data(4))))["state"] == "done"
        sampler = running.engine.submit("a", 3, "save_weights_for_sampler", {"name": "one"})
        await settled(running.engine.submit("a", 4, BACKWARD, data(4)))
        assert running.gate.requests.count("/capture") == 2
        assert [future.state for future in (first, second, sampler)] == ["pending"] * 3
        running.gate.open_at("/persist")
        result = (await settled(first))["result"]
        assert result["path"] == "lilo://a/checkpoint/one.pt"
        assert (tmp_path / "a/checkpoint/one.pt").stat().st_size == result["bytes"]
        assert (await settled(second))["state"] == (await settled(sampler))["state"] == "done"


async def test_a_failed_capture_frees_its_lane(tmp_path: Path) -> None:
    """The next save is not stuck behind one that never reached the disk."""
    async with running_engine(tmp_path) as running:
        await running.model("m")
        await running.engine._backend.delete("m")
        failed = await settled(running.engine.submit("m", 1, "save_weights", {"name": "one"}))
        assert (failed["state"], failed["error"]) == ("failed", "there is no adapter m")
        await running.engine._backend.create("m")
        saved = running.engine.submit("m", 2, "save_weights", {"name": "two"})
        assert (await settled(saved))["state"] == "done"


async def test_unloading_fails_what_waits_and_lets_end_what_runs(tmp_path: Path) -> None:
    """The command on the lane ends first; the queued one says why it never ran; afterwards the
    model is unknown, and its slot is free."""
    async with running_engine(tmp_path) as running:
        await running.model("m")
        running.gate.close_at("/forward_backward")
        runs = running.engine.submit("m", 1, BACKWARD, data(4))
        await running.gate.arrived.wait()
        waits = running.engine.submit("m", 2, "optim_step", {})
        with trio.fail_after(10):
            async with trio.open_nursery() as unloading:
                unloading.start_soon(running.engine.unload, "m")
                error = (await settled(waits))["error"]
                assert error == "the model was unloaded before this ran"
                with pytest.raises(UnknownModelError, match="there is no model m here"):
                    running.engine.submit("m", 3, BACKWARD, data(4))
                assert "/delete" not in running.gate.requests
                running.gate.open_at("/forward_backward")
                assert (await settled(runs))["state"] == "done"
        assert running.recorder.calls[-1] == ("forget_model", ("m",), {})
        assert running.gate.requests[-1] == "/delete"
        await running.model("m")


async def test_a_model_that_cannot_be_created_fails_with_its_commands(tmp_path: Path) -> None:
    """A backend without a free slot is told to whoever waits; the name may be used again."""
    async with running_engine(tmp_path) as running:
        for model in "abcd":
            await running.model(model)
        creation = running.engine.create_model("e")
        command = running.engine.submit("e", 1, BACKWARD, data(4))
        assert "all 4 adapter slots are taken" in (await settled(creation))["error"]
        assert "the model could not be created: all 4" in (await settled(command))["error"]
        await running.engine.unload("a")
        await running.model("e")


async def test_stopping_answers_everybody(tmp_path: Path) -> None:
    """What waits fails at once, nothing new is taken, what runs ends."""
    async with running_engine(tmp_path) as running:
        await running.model("m")
        running.gate.close_at("/forward_backward")
        runs = running.engine.submit("m", 1, BACKWARD, data(4))
        await running.gate.arrived.wait()
        waits = running.engine.submit("m", 2, "optim_step", {})
        running.engine.stop()
        assert waits.to_json()["error"] == "the trainer stopped before this ran"
        with pytest.raises(UnknownModelError, match="the trainer is stopping"):
            running.engine.create_model("n")
        with pytest.raises(UnknownModelError, match="the trainer is stopping"):
            running.engine.submit("m", 3, BACKWARD, data(4))
        running.gate.open_at("/forward_backward")
        with trio.fail_after(10):
            await running.engine.drained()
        assert runs.state == "done"


async def test_refused_commands_are_not_queued(tmp_path: Path) -> None:
    """Unknown models, invalid commands and those beyond the bound raise, and take no sequence
    id."""
    async with running_engine(tmp_path) as running:
        await running.model("m")
        with pytest.raises(UnknownModelError):
            running.engine.submit("other", 1, BACKWARD, data(4))
        with pytest.raises(InvalidOperationError):
            running.engine.submit("m", 1, BACKWARD, {})
        with pytest.raises(BusyError):
            running.engine.submit("m", MAX_QUEUED + 1, BACKWARD, data(4))
        with pytest.raises(ConflictError, match="there is a model m already"):
            running.engine.create_model("m")
        with pytest.raises(UnknownRequestError, match="no request m:1 is known here"):
            running.engine.future("m:1")
        assert not running.recorder.named("begin")
        assert (await settled(running.engine.submit("m", 1, BACKWARD, data(4))))["state"] == "done"


async def test_finished_results_are_kept_up_to_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest goes first; asking for it says so, and submitting it again does not run it."""
    monkeypatch.setattr(futures_module, "MAX_FINISHED", 2)
    async with running_engine(tmp_path) as running:
        await running.model("m")
        for seq in (1, 2, 3):
            await settled(running.engine.submit("m", seq, "forward", data(2)))
        assert [running.engine.future(f"m:{seq}").state for seq in (2, 3)] == ["done"] * 2
        with pytest.raises(UnknownRequestError, match="its result is no longer kept"):
            running.engine.future("m:1")
        with pytest.raises(ConflictError, match="m:1 ran before"):
            running.engine.submit("m", 1, "forward", data(2))


async def test_the_scheduler_delay_is_spent_before_the_start(tmp_path: Path) -> None:
    """An injected delay makes commands wait; it is no part of their execution."""
    async with running_engine(tmp_path, scheduler_delay=0.05) as running:
        await running.model("m")
        submitted = time.time()
        await settled(running.engine.submit("m", 1, "forward", data(2)))
        (_, _, _, t0, _), _ = running.recorder.named("span")[-1]
        assert t0 - submitted >= 0.05
