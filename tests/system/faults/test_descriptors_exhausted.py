"""No file descriptor is left, in the trainer or in the sidecar."""

from __future__ import annotations

import contextlib
import resource
import socket
from pathlib import Path

from support.faults import RestartedSidecar, assert_all_applied, assert_smooth, load, progressed
from support.sidecar import SidecarProcess, start_sidecar, wait_until
from support.soak import rounds

A_JOURNAL = 1_200_000
"""Bytes: a journal of a small state is followed by a new one before it has so many."""


def descriptors(sidecar: SidecarProcess) -> int:
    """Open in the sidecar."""
    return len(list(Path(f"/proc/{sidecar.process.pid}/fd").iterdir()))


def test_trainer_without_a_descriptor_reports_once_it_has_one(tmp_path: Path) -> None:
    """It holds what it has to say, tells the log why it cannot connect, and loses nothing."""
    with (
        start_sidecar(tmp_path) as sidecar,
        load(sidecar.socket, descriptors=False) as trainer,
    ):
        for _ in range(10):
            trainer.tell("burst 100")
        assert sidecar.health()["producers"] == 0
        trainer.tell("descriptors")
        progressed(sidecar)
        report = trainer.tell("stop")
        assert_all_applied(sidecar, report)
        assert_smooth(report)
        (said,) = trainer.close().splitlines()
        assert "Too many open files. Events wait until a descriptor is free" in said


def test_sidecar_without_a_descriptor_recovers(tmp_path: Path) -> None:
    """Clients hold all it has: the trainer that is connected is heard all the same, one that
    comes meanwhile is heard once some of them are gone, and no count is lost."""
    with start_sidecar(tmp_path) as sidecar, load(sidecar.socket) as trainer:
        for _ in range(rounds(1, soak=50)):
            progressed(sidecar)
            soft, hard = resource.prlimit(sidecar.process.pid, resource.RLIMIT_NOFILE)
            limit = descriptors(sidecar) + 4
            resource.prlimit(sidecar.process.pid, resource.RLIMIT_NOFILE, (limit, hard))
            with contextlib.ExitStack() as clients:
                for _ in range(12):
                    client = clients.enter_context(socket.socket(socket.AF_UNIX))
                    client.connect(str(sidecar.socket))
                wait_until(lambda: descriptors(sidecar), lambda count: count >= limit)  # noqa: B023
                progressed(sidecar)
            progressed(sidecar)
            resource.prlimit(sidecar.process.pid, resource.RLIMIT_NOFILE, (soft, hard))
        report = trainer.tell("stop")
        assert_all_applied(sidecar, report)
        assert sidecar.health()["journal"]["writing"]
        assert sidecar.health()["ingest"]["faults"] == 0
        assert_smooth(report)
        with load(sidecar.socket) as another:
            wait_until(lambda: sidecar.health()["producers"], lambda count: count == 2)
            another.close()
        trainer.close()


def test_kill_of_a_sidecar_without_a_descriptor_for_a_new_journal_costs_nothing(
    tmp_path: Path,
) -> None:
    """The journal that was to be followed by another is written on, and the next sidecar goes on
    from it: every event is counted, once."""
    with RestartedSidecar(tmp_path) as sidecar, load(sidecar.socket) as trainer:
        for _ in range(rounds(1, soak=20)):
            progressed(sidecar.now)
            state = sidecar.socket.with_suffix(".state")
            (snapshot,) = state.glob("snapshot-*")
            journal = state / snapshot.name.replace("snapshot", "journal")
            _, hard = resource.prlimit(sidecar.now.process.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(sidecar.now.process.pid, resource.RLIMIT_NOFILE, (0, hard))
            trainer.tell("burst 30000")
            wait_until(lambda: journal.stat().st_size, lambda size: size > A_JOURNAL)  # noqa: B023
            assert list(state.glob("snapshot-*")) == [snapshot]
            sidecar.kill()
            sidecar.start()
        report = trainer.tell("stop")
        assert_all_applied(sidecar.now, report)
        assert sidecar.now.health()["journal"]["writing"]
        trainer.close()
