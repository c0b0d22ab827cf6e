"""kill -9 of the trainer: what arrived whole counts, and a new one starts afresh."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

from support.faults import arrived, assert_all_applied, load, progressed
from support.sidecar import SidecarProcess, start_sidecar, wait_until
from support.soak import rounds

LONG_NAME = "m" * 250
"""Of a model: its batches are larger than what the system takes at once, so that one breaks
off."""
REGISTRATION = 2
BATCH = ("begin", "state", "span", "finish")
"""What one model and one thread report over and over, in this order."""


def at_rest(sidecar: SidecarProcess) -> dict[str, Any]:
    """The answer for all models, once the trainer is gone."""
    sidecar.wait_for(lambda health: health["producers"] == 0)
    return sidecar.timing()


def test_trainer_killed_under_load_leaves_a_whole_prefix(tmp_path: Path) -> None:
    """What it reported up to some call is counted, and nothing after that; the next trainer's
    figures begin with its own first call, and the old one's are a line on stdout."""
    with start_sidecar(tmp_path) as sidecar:
        for life in range(rounds(3, soak=100)):
            with load(sidecar.socket, models=1, threads=1) as trainer:
                wait_until(
                    lambda: len(sidecar.lines("lilo_critical_path")),
                    life.__eq__,
                )
                progressed(sidecar)
                trainer.process.kill()
                trainer.process.wait()
                answer = at_rest(sidecar)
            delivery, phases = answer["delivery"], answer["phases"]
            assert arrived(delivery) == delivery["applied"]
            batches, more = divmod(delivery["applied"] - REGISTRATION, len(BATCH))
            count = batches + (more > BATCH.index("span"))
            assert phases["forward_backward.execute"]["count"] == count
            assert phases["forward_backward.queue_wait"]["count"] == count
        with load(sidecar.socket) as trainer:
            progressed(sidecar)
            assert_all_applied(sidecar, trainer.tell("stop"))
            trainer.close()


def killed_within_a_batch(sidecar: SidecarProcess) -> dict[str, Any]:
    """The answer after a trainer was killed while the sidecar stood still and the socket was
    full. Whether the last batch is in it in part is up to its size and the system."""
    with load(sidecar.socket, models=0, threads=0) as trainer:
        trainer.tell("burst 100")
        wait_until(lambda: sidecar.timing()["delivery"]["applied"], lambda applied: applied == 100)
        sidecar.process.send_signal(signal.SIGSTOP)
        trainer.tell(f"burst 20000 {LONG_NAME}")
        trainer.process.kill()
        trainer.process.wait()
        sidecar.process.send_signal(signal.SIGCONT)
        return at_rest(sidecar)


def test_message_that_broke_off_is_not_applied_in_part(tmp_path: Path) -> None:
    """Killed while a batch is half in the socket: the whole ones count, the half one is a
    protocol error, and the sidecar goes on."""
    with start_sidecar(tmp_path) as sidecar:
        for _ in range(20):
            answer = killed_within_a_batch(sidecar)
            delivery = answer["delivery"]
            assert arrived(delivery) == delivery["applied"]
            assert 100 < delivery["applied"] < 20_100
            assert answer["phases"]["forward_backward.execute"]["count"] == delivery["applied"]
            if sidecar.health()["ingest"]["protocol_errors"]:
                break
        assert sidecar.health()["ingest"]["protocol_errors"] == 1
        assert sidecar.log.wait_for(lambda line: "truncated" in line)
        with load(sidecar.socket) as trainer:
            progressed(sidecar)
            assert_all_applied(sidecar, trainer.tell("stop"))
            trainer.close()
