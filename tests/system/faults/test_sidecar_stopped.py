"""A sidecar that stands still for longer than the hook can hold events."""

from __future__ import annotations

import signal
from pathlib import Path

from lilo_engine_hook._queue import MAX_EVENTS
from support.faults import Reader, arrived, assert_smooth, load, settled
from support.sidecar import start_sidecar, wait_until
from support.soak import rounds

BURST = 2000
MORE = MAX_EVENTS + 15_000
"""Spans while it stands: the socket holds a few thousand beside what the hook does."""


def test_what_found_no_room_is_counted_to_one(tmp_path: Path) -> None:
    """SIGSTOP, more events than are held, SIGCONT: what was dropped and what was applied add up
    to the calls, in every reader's intervals too, over the same connection."""
    with (
        start_sidecar(tmp_path) as sidecar,
        load(sidecar.socket, models=0, threads=0) as trainer,
    ):
        reader = Reader(sidecar.url, "loop")
        report = trainer.tell(f"burst {BURST}")
        settled(sidecar, report)
        reader.read()
        assert reader.incomplete == 0
        connection = trainer.connection()
        for _ in range(rounds(1, soak=30)):
            before = sidecar.timing()["delivery"]["dropped"]
            sidecar.process.send_signal(signal.SIGSTOP)
            report = trainer.tell(f"burst {MORE}")
            sidecar.process.send_signal(signal.SIGCONT)
            answer = settled(sidecar, report)
            delivery = answer["delivery"]
            assert arrived(delivery) == report["calls"]
            assert delivery["dropped"] > before
            assert delivery["missed"] == delivery["rejected"] == 0
            assert answer["phases"]["forward_backward.execute"]["count"] == delivery["applied"]
        assert trainer.connection() == connection
        assert sidecar.health()["ingest"]["protocol_errors"] == 0
        reader.finish()
        assert reader.incomplete == 1, "the interval with the drops says so"
        assert reader.delivery == delivery
        assert reader.phases["forward_backward.execute"] == delivery["applied"]
        assert_smooth(report)
        trainer.close()


def test_nothing_is_dropped_while_there_is_room(tmp_path: Path) -> None:
    """A sidecar that stands still for a while costs nothing: it hears all of it afterwards."""
    with start_sidecar(tmp_path) as sidecar, load(sidecar.socket) as trainer:
        for _ in range(rounds(3, soak=100)):
            sidecar.process.send_signal(signal.SIGSTOP)
            before = trainer.tell("burst 5000")["calls"]
            sidecar.process.send_signal(signal.SIGCONT)
            wait_until(
                lambda: arrived(sidecar.timing()["delivery"]),
                lambda count: count >= before,  # noqa: B023 - waited for at once
            )
        report = trainer.tell("stop")
        answer = settled(sidecar, report)
        assert answer["delivery"]["applied"] == report["calls"]
        assert answer["delivery"]["sent"] == report["calls"]
        assert_smooth(report)
        trainer.close()
