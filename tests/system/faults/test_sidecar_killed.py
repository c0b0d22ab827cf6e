"""kill -9 of the sidecar, again and again, while a trainer reports and readers read."""

from __future__ import annotations

import contextlib
import random
import time
from pathlib import Path

from support.faults import (
    Reader,
    RestartedSidecar,
    assert_adds_up,
    assert_all_applied,
    assert_smooth,
    load,
    progressed,
    reading,
)
from support.sidecar import TIMEOUT
from support.soak import rounds

ROUNDS = rounds(50, soak=1000)
A_BATCH = 1000
"""Bytes in the journal that are no question of a reader's."""


def wait_for_batch(state: Path) -> None:
    """Until a batch is in the journal. It is not acknowledged then: to apply it takes longer than
    to see the file grow."""

    def size() -> int:
        with contextlib.suppress(FileNotFoundError):  # another one was begun
            return sum(journal.stat().st_size for journal in state.glob("journal-*"))
        return 0

    deadline = time.monotonic() + TIMEOUT
    before = size()
    while (now := size()) < before + A_BATCH:
        assert time.monotonic() < deadline
        before = now


def test_killed_sidecar_loses_nothing_and_counts_nothing_twice(tmp_path: Path) -> None:
    """At random moments, and between a batch's record and its acknowledgement: all of it is there
    at the end, for whoever never ended an interval and for readers that acknowledge theirs."""
    moments = random.Random(9)
    with RestartedSidecar(tmp_path) as sidecar, load(sidecar.socket) as trainer:
        readers = [Reader(sidecar.url, "loop"), Reader(sidecar.url, "loop", "m-0")]
        with reading(*readers):
            for turn in range(ROUNDS):
                progressed(sidecar.now)
                if turn % 2:
                    time.sleep(moments.uniform(0, 0.05))
                else:
                    wait_for_batch(sidecar.socket.with_suffix(".state"))
                sidecar.kill()
                sidecar.start()
        report = trainer.tell("stop")
        assert_all_applied(sidecar.now, report)
        for reader in readers:
            reader.finish()
            assert_adds_up(reader, report)
            assert reader.incomplete == 0
        assert_smooth(report)
        assert trainer.close() == ""
