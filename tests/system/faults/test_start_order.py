"""The parts of a deployment start in any order."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.faults import RestartedSidecar, Trainer, load, onlooked, settled
from support.sidecar import TIMEOUT, wait_until

DEVICE_SPANS = 20
BACKEND = f"""
import sys
from lilo_engine_hook.device import DeviceTimer
timer = DeviceTimer(sys.argv[1])
for _ in range({DEVICE_SPANS}):
    with timer.span(["m-0"], "forward_backward"):
        pass
print("reported", flush=True)
sys.stdin.read()
timer.close()
"""
PARTS = ("sidecar", "trainer", "backend")


@contextlib.contextmanager
def backend(socket: Path) -> Iterator[None]:
    """A process that owns the GPU, which has reported what the device did."""
    command = [sys.executable, "-c", BACKEND, str(socket)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "reported\n"
            yield
            process.communicate(timeout=TIMEOUT)
        finally:
            process.kill()


@pytest.mark.parametrize("restarted", [False, True], ids=["steady", "restarted"])
@pytest.mark.parametrize("order", list(itertools.permutations(PARTS)), ids="-".join)
def test_every_order_comes_to_the_same_counts(
    tmp_path: Path, order: tuple[str, ...], *, restarted: bool
) -> None:
    """Whoever comes first, and whether or not the sidecar is killed and restarted after each
    that comes once it is there: the engine's calls and the backend's are all applied."""
    sidecar = RestartedSidecar(tmp_path)
    trainer: Trainer | None = None
    with contextlib.ExitStack() as running:
        started = 0
        for part in order:
            if part == "sidecar":
                running.enter_context(sidecar)
            elif part == "trainer":
                trainer = running.enter_context(load(sidecar.socket, pace=50))
            else:
                running.enter_context(backend(sidecar.socket))
            started += part != "sidecar"
            if "sidecar" in order[: order.index(part) + 1]:
                heard = started
                wait_until(
                    lambda: sidecar.now.health()["producers"],
                    lambda count: count == heard,  # noqa: B023
                )
                if restarted:
                    sidecar.kill()
                    sidecar.start()
        assert trainer is not None
        report = trainer.tell("stop")
        report["calls"] += DEVICE_SPANS
        answer = settled(sidecar.now, report)
        assert answer["delivery"]["applied"] == answer["delivery"]["sent"] == report["calls"]
        expected = {**report["phases"]["m-0"], "forward_backward.device": DEVICE_SPANS}
        phases = onlooked(sidecar.now, "m-0")["phases"]
        assert {name: phase["count"] for name, phase in phases.items()} == expected
        trainer.close()
