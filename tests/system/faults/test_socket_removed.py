"""The socket's file is removed while everything runs."""

from __future__ import annotations

from pathlib import Path

from support.faults import RestartedSidecar, assert_all_applied, assert_smooth, load, progressed
from support.sidecar import start_sidecar, wait_until


def test_whoever_is_connected_goes_on_and_a_restart_brings_it_back(tmp_path: Path) -> None:
    """Counts stay exact through the removal and the sidecar's end after it."""
    with RestartedSidecar(tmp_path) as sidecar, load(sidecar.socket) as trainer:
        progressed(sidecar.now)
        sidecar.socket.unlink()
        progressed(sidecar.now)
        sidecar.kill()
        sidecar.start()
        assert sidecar.socket.is_socket()
        progressed(sidecar.now)
        report = trainer.tell("stop")
        assert_all_applied(sidecar.now, report)
        assert_smooth(report)
        trainer.close()


def test_running_sidecar_puts_its_socket_back(tmp_path: Path) -> None:
    """A trainer that comes later finds it, without anybody's restart."""
    with start_sidecar(tmp_path) as sidecar:
        sidecar.socket.unlink()
        wait_until(sidecar.socket.is_socket, bool)
        with load(sidecar.socket) as trainer:
            progressed(sidecar)
            assert_all_applied(sidecar, trainer.tell("stop"))
            trainer.close()
