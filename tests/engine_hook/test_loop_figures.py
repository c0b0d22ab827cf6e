"""Timing of a hand-written loop: what a real sidecar makes of it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lilo_engine_hook import TimingObserver
from lilo_engine_hook.loop import LoopTiming
from support.sidecar import SidecarProcess, start_sidecar
from support.snippets import snippet

pytestmark = pytest.mark.usefixtures("patient")
BACKWARD = "forward_backward"
PATIENT = "from lilo_engine_hook import _producer; _producer.FLUSH_TIMEOUT = 20.0\n"
"""A busy machine is no failure."""


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    with start_sidecar(tmp_path_factory.mktemp("sidecar")) as running:
        yield running


@pytest.fixture
def timing(sidecar: SidecarProcess) -> Iterator[LoopTiming]:
    """A trainer of its own; its predecessor's models are gone."""
    timing = LoopTiming(TimingObserver(sidecar.socket))
    yield timing
    timing.close()


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
            [sys.executable, "-c", PATIENT + snippet("OBSERVER.md", "A loop written by hand")],
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
