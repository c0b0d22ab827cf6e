"""No room for the journal: the sidecar goes on in memory, and comes back to it."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

from support.faults import (
    Reader,
    RestartedSidecar,
    assert_adds_up,
    assert_all_applied,
    assert_smooth,
    load,
    progressed,
)
from support.sidecar import SidecarProcess, wait_until
from support.soak import rounds


def limit_files(sidecar: SidecarProcess, size: int) -> None:
    """No file of the sidecar's grows beyond ``size`` bytes."""
    _, hard = resource.prlimit(sidecar.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(sidecar.process.pid, resource.RLIMIT_FSIZE, (size, hard))


def journal(sidecar: SidecarProcess, *, writing: bool) -> dict[str, Any]:
    """What health says of the journal, once that is the case."""
    health = sidecar.wait_for(lambda health: health["journal"]["writing"] is writing)
    state: dict[str, Any] = health["journal"]
    return state


def test_full_disk_costs_no_count(tmp_path: Path) -> None:
    """Health and answers say that nothing is written, and why; when there is room again it is
    written again, with all that came meanwhile, so that a kill -9 after it costs nothing."""
    with RestartedSidecar(tmp_path) as sidecar, load(sidecar.socket) as trainer:
        reader = Reader(sidecar.url, "loop")
        for _ in range(rounds(1, soak=20)):
            progressed(sidecar.now)
            assert journal(sidecar.now, writing=True)["reason"] is None
            limit_files(sidecar.now, 10)
            state = journal(sidecar.now, writing=False)
            assert state["reason"] in ("File too large", "No space left on device")
            assert sidecar.now.timing()["journal"] == state
            assert reader.read()
            progressed(sidecar.now)
            limit_files(sidecar.now, resource.RLIM_INFINITY)
            journal(sidecar.now, writing=True)
            assert sidecar.now.timing()["journal"] == {"writing": True, "reason": None}
            progressed(sidecar.now)
            assert reader.read()
            sidecar.kill()
            sidecar.start()
        report = trainer.tell("stop")
        assert_all_applied(sidecar.now, report)
        reader.finish()
        assert_adds_up(reader, report)
        assert reader.incomplete == 0
        assert_smooth(report)
        trainer.close()


def test_kill_while_nothing_is_written_is_counted_as_what_it_is(tmp_path: Path) -> None:
    """What the killed sidecar had in memory is gone. Its successor begins anew and counts every
    call: those that it never saw are missed, and readers hear that their figures have a hole."""
    with RestartedSidecar(tmp_path) as sidecar, load(sidecar.socket) as trainer:
        reader = Reader(sidecar.url, "loop")
        progressed(sidecar.now)
        limit_files(sidecar.now, 10)
        journal(sidecar.now, writing=False)
        progressed(sidecar.now)
        assert reader.read()
        sidecar.kill()
        sidecar.start()
        progressed(sidecar.now)
        report = trainer.tell("stop")
        delivery = wait_until(
            lambda: sidecar.now.timing()["delivery"],
            lambda counts: counts["sent"] >= report["calls"],
        )
        assert delivery["sent"] == report["calls"]
        assert delivery["dropped"] == delivery["missed"] > 0
        assert delivery["applied"] == report["calls"] - delivery["missed"]
        assert reader.incomplete == 0
        reader.finish()
        assert reader.incomplete == 1
        trainer.close()
