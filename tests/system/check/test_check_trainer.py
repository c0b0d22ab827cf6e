"""`lilo-sidecar check` of real deployments whose trainer does not report, is stuck, or reported
what is not in the figures: it says so, and what to do."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from lilo_engine_hook import wire
from lilo_sidecar.check.trainer_findings import STUCK_AFTER
from lilo_sidecar.core.trainer import MAX_PENDING
from support.checking import check
from support.feed import begin, span
from support.producer import Producer
from support.sidecar import SidecarProcess


def test_no_trainer(sidecar: SidecarProcess) -> None:
    """None ever connected: what to set and what to write, word for word."""
    done = check("--socket", sidecar.socket)
    assert (done.status, done.codes) == (1, ["no_trainer"])
    said = done.says("no_trainer")
    assert f"LILO_TIMING_SOCKET={sidecar.socket}" in said
    assert "from lilo_engine_hook import attach; timing = attach(engine)" in said


def test_trainer_that_is_gone(sidecar: SidecarProcess, trainer: Producer) -> None:
    """And since when."""
    trainer.close()
    sidecar.wait_for(lambda health: not health["trainer"]["connected"])
    done = check("--socket", sidecar.socket)
    assert (done.status, done.codes) == (1, ["trainer_gone"])
    assert " s ago" in done.says("trainer_gone")


def test_backend_without_an_engine(sidecar: SidecarProcess) -> None:
    """The GPU's process reports, and the engine's does not."""
    with Producer(sidecar.socket) as backend:
        backend.greet("backend")
        assert check("--socket", sidecar.socket).codes == ["no_engine"]


def test_engine_that_says_nothing(sidecar: SidecarProcess) -> None:
    """Connected and never called; then called, and nothing has run."""
    with Producer(sidecar.socket) as producer:
        producer.greet()
        assert check("--socket", sidecar.socket).codes == ["no_calls"]
        producer.send(wire.Register(1.0, "m"))
        assert check("--socket", sidecar.socket).codes == ["no_operations"]


def test_lane_that_is_stuck(sidecar: SidecarProcess, trainer: Producer) -> None:
    """Said once it is in one operation for as long as that takes no operation, and not before."""
    now = time.time()
    trainer.send(wire.State(now - STUCK_AFTER + 60, ("m",), "executing:optim_step"))
    assert check("--socket", sidecar.socket).codes == []
    trainer.send(wire.State(now - STUCK_AFTER, ("m",), "executing:\x1b[2Jstep"))
    done = check("--socket", sidecar.socket)
    assert (done.status, done.codes) == (1, ["lane_stuck"])
    assert "gpu" in done.says("lane_stuck")
    assert "\x1b" not in done.says("lane_stuck")


def _dropped(trainer: Producer) -> None:
    trainer.socket.sendall(wire.encode_batch(trainer.sent + 1, 7, 0, wire.join([])))
    trainer.acknowledged()


def _missed(trainer: Producer) -> None:
    trainer.sent += 7
    trainer.work()


def _rejected(trainer: Producer) -> None:
    trainer.socket.sendall(wire.encode_batch(trainer.sent + 1, 0, 7, wire.join([])))
    trainer.acknowledged()


def _unweighed(trainer: Producer) -> None:
    trainer.socket.sendall(wire.encode_batch(trainer.sent + 1, 0, 0, wire.join([]), 7))
    trainer.acknowledged()


def _negative(trainer: Producer) -> None:
    for seq in range(2, 9):
        trainer.send(begin("m", seq, 9.0), span(["m"], 5.0, 6.0, ids=[f"m:{seq}"]))


def _series_refused(trainer: Producer) -> None:
    for first in range(0, 8192 + 256, 256):
        trainer.work([f"model-{number}" for number in range(first, first + 256)])


def _pending_evicted(trainer: Producer) -> None:
    trainer.send(wire.Finish(4.0, "m", "m:1"))
    for first in range(2, MAX_PENDING + 2 + 7, 100):
        stop = min(first + 100, MAX_PENDING + 2 + 7)
        trainer.send(*[begin("m", seq, 5.0) for seq in range(first, stop)])


@pytest.mark.parametrize(
    ("lose", "code", "says"),
    [
        (_dropped, "dropped", "7 events of 9 were dropped"),
        (_missed, "missed", "7 events of 10 never came"),
        (_rejected, "rejected", "7 calls of the observer"),
        (_unweighed, "unweighed", "weight of 7 commands"),
        (_negative, "negative", "7 durations"),
        (_series_refused, "series_refused", "258 records"),
        (_pending_evicted, "pending_evicted", "7 commands"),
    ],
)
def test_losses(
    sidecar: SidecarProcess,
    trainer: Producer,
    lose: Callable[[Producer], None],
    code: str,
    says: str,
) -> None:
    """Each kind is told by itself, with how many."""
    lose(trainer)
    done = check("--socket", sidecar.socket)
    assert (done.status, done.codes) == (1, [code])
    assert says in done.says(code)
