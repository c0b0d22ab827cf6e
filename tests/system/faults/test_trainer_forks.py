"""The trainer forks under load, in all the ways there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.faults import assert_all_applied, assert_smooth, load, progressed
from support.sidecar import start_sidecar
from support.soak import rounds


@pytest.mark.parametrize("way", ["fork", "fork-from-thread", "fork-and-exit"])
def test_children_count_beside_their_parent(tmp_path: Path, way: str) -> None:
    """Other threads report while it forks: no call of the parent's or a child's is lost or comes
    twice, nobody hangs, and they are one trainer."""
    with start_sidecar(tmp_path) as sidecar, load(sidecar.socket) as trainer:
        for _ in range(rounds(3, soak=100)):
            progressed(sidecar)
            trainer.tell(way)
        progressed(sidecar)
        report = trainer.tell("stop")
        assert_all_applied(sidecar, report)
        assert sidecar.lines("lilo_critical_path") == []
        assert sidecar.health()["ingest"]["protocol_errors"] == 0
        assert_smooth(report)
        assert trainer.close() == ""


@pytest.mark.parametrize("way", ["spawn", "fork-and-exec"])
def test_program_that_a_trainer_starts_counts_beside_it(tmp_path: Path, way: str) -> None:
    """It is a trainer of its own, and takes nothing of the other's connection with it."""
    with start_sidecar(tmp_path) as sidecar, load(sidecar.socket) as trainer:
        progressed(sidecar)
        trainer.tell(way)
        progressed(sidecar)
        report = trainer.tell("stop")
        assert_all_applied(sidecar, report)
        assert_smooth(report)
        assert trainer.close() == ""
