"""The accounts on the real engine and backend, through the real sidecar: what is whose fault."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from support.local_engine import RunningEngine, data, running_engine, settled
from support.sidecar import SidecarProcess, start_sidecar

pytestmark = pytest.mark.trio

BACKWARD = "forward_backward"
STEPS = 10
DELAY = 0.2
"""Seconds: ten steps of it are far more than what a busy machine adds."""


@pytest.fixture
def sidecar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SidecarProcess]:
    """A real sidecar, where this test's engines report to."""
    with start_sidecar(tmp_path) as running:
        monkeypatch.setenv("LILO_TIMING_SOCKET", str(running.socket))
        yield running


@asynccontextmanager
async def training(tmp_path: Path, *models: str, **options: Any) -> AsyncIterator[RunningEngine]:
    """An engine with these models."""
    async with running_engine(tmp_path, **options) as running:
        for model in models:
            await running.model(model)
        yield running


async def train(running: RunningEngine, model: str, *lengths: int, first: int = 1) -> None:
    """Some steps, one after the other."""
    for seq in range(first, first + STEPS):
        future = running.engine.submit(model, seq, BACKWARD, data(*lengths))
        assert (await settled(future))["state"] == "done"


async def account(sidecar: SidecarProcess, model: str, executions: int) -> dict[str, Any]:
    """The model's answer, once so many executions of it were reported."""

    def answer() -> dict[str, Any]:
        return sidecar.timing(model)

    while True:
        timing = await trio.to_thread.run_sync(answer)
        execute = timing["phases"].get(f"{BACKWARD}.execute")
        if execute is not None and execute["count"] == executions:
            return timing
        await trio.sleep(0.01)


async def test_alone_nobody_else_is_in_the_account(tmp_path: Path, sidecar: SidecarProcess) -> None:
    """A model that has the trainer to itself has no neighbors and no shared batch, and its share
    is the whole of its executions."""
    with trio.fail_after(60):
        async with training(tmp_path, "m") as running:
            await train(running, "m", 8)
            timing = await account(sidecar, "m", STEPS)
    step = timing["step"]
    assert step["neighbors_s"] == step["shared_batch_s"] == 0.0
    assert step["mine_s"] == pytest.approx(sum(timing["shares"].values()), abs=2e-6)
    executed = timing["phases"][f"{BACKWARD}.execute"]["total_s"]
    assert timing["shares"][BACKWARD] == pytest.approx(executed, abs=2e-6)
    assert timing["waits"][BACKWARD]["neighbors_s"] == 0.0


async def test_beside_a_heavy_tenant_it_is_the_neighbour_not_the_trainer(
    tmp_path: Path, sidecar: SidecarProcess
) -> None:
    """The same steps alone and beside a heavy tenant that always has work queued: waiting for
    neighbors and sharing batches grow from nothing, the trainer's overhead hardly does."""
    with trio.fail_after(60):
        async with training(tmp_path, "light", "heavy") as running:
            await train(running, "light", 4)
            alone = (await account(sidecar, "light", STEPS))["step"]
            for seq in range(1, 25):
                running.engine.submit("heavy", seq, BACKWARD, data(*[16] * 100))
            await train(running, "light", 4, first=1 + STEPS)
            assert running.engine.future("heavy:24").state == "pending", "it had work to the end"
            both = (await account(sidecar, "light", 2 * STEPS))["step"]
    grown = {part: both[part] - alone[part] for part in alone}
    assert alone["neighbors_s"] == alone["shared_batch_s"] == 0.0
    others = grown["neighbors_s"] + grown["shared_batch_s"]
    assert others > 3 * grown["mine_s"]
    assert grown["overhead_s"] < 0.25 * others


async def test_shares_add_up_to_the_lanes_busy_time(
    tmp_path: Path, sidecar: SidecarProcess
) -> None:
    """Coalesced batches of several tenants with different weights: the shares of all models are
    what the lane was busy, and each follows its tokens."""
    with trio.fail_after(60):
        async with training(tmp_path, "a", "b", "c") as running:
            async with trio.open_nursery() as nursery:
                for model, lengths in (("a", (16, 16)), ("b", (8,)), ("c", (4,))):
                    nursery.start_soon(train, running, model, *lengths)
            answers = [await account(sidecar, model, STEPS) for model in "abc"]
            everyone = await trio.to_thread.run_sync(sidecar.timing)
    busy = sum(everyone["shares"].values())
    assert sum(sum(a["shares"].values()) for a in answers) == pytest.approx(busy, abs=1e-5)
    assert everyone["phases"][f"{BACKWARD}.execute"]["mean_batch"] > 1.0
    by_tokens = [answer["shares"][BACKWARD] for answer in answers]
    assert by_tokens == sorted(by_tokens, reverse=True)
    assert all(answer["step"]["shared_batch_s"] > 0 for answer in answers)


@pytest.fixture
def delays(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long each delay of the scheduler's was in the end: on a busy machine longer than it was
    to be."""
    took: list[float] = []
    sleep = trio.sleep

    async def measured(seconds: float) -> None:
        began = time.time()
        await sleep(seconds)
        if seconds == DELAY:
            took.append(time.time() - began)

    monkeypatch.setattr(trio, "sleep", measured)
    return took


async def test_delay_of_the_scheduler_is_overhead(
    tmp_path: Path, sidecar: SidecarProcess, delays: list[float]
) -> None:
    """A delay put into the scheduler grows the overhead by that delay, within 5%, and nothing
    else: the neighbour is not blamed."""
    overhead = []
    with trio.fail_after(60):
        for model, delay in (("prompt", 0.0), ("delayed", DELAY)):
            async with training(tmp_path, model, scheduler_delay=delay) as running:
                await train(running, model, 8)
                timing = await account(sidecar, model, STEPS)
                # The acceptance was held back as well, before the first step.
                held = timing["waits"]["accept"]["overhead_s"]
                overhead.append(timing["step"]["overhead_s"] - held)
                assert timing["step"]["neighbors_s"] == 0.0
                assert timing["waits"][BACKWARD]["neighbors_s"] == 0.0
    _of_the_acceptance, *of_steps = delays
    assert len(of_steps) == STEPS
    assert overhead[1] - overhead[0] == pytest.approx(sum(of_steps), rel=0.05)
