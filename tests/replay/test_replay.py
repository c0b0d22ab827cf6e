"""Real activity of a shared trainer, through the real hook and sidecar, against its own figures."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.sidecar import SidecarProcess, start_sidecar, wait_until

HERE = Path(__file__).parent
RECORD = HERE / "two_clients.json"
_KINDS = {"export_slot": "save_weights_for_sampler.capture"}


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    return dict(json.loads(RECORD.read_text()))


@pytest.fixture(scope="module")
def sidecar(
    tmp_path_factory: pytest.TempPathFactory, record: dict[str, Any]
) -> Iterator[SidecarProcess]:
    """A sidecar that has heard the whole record."""
    with start_sidecar(tmp_path_factory.mktemp("replay")) as running:
        script = HERE / "replay.py"
        subprocess.run([sys.executable, script, RECORD, running.socket], check=True, timeout=60)
        events = 4 * len(record["lane"]) + 2 * len(record["submitted"])
        events -= record["published"]["counts"]["export_slot"]
        wait_until(running.timing, lambda answer: answer["delivery"]["applied"] == events)
        yield running


def test_totals_and_counts_are_the_published_ones(
    sidecar: SidecarProcess, record: dict[str, Any]
) -> None:
    """Seconds and calls per operation, to a millisecond."""
    phases = sidecar.timing()["phases"]
    published = record["published"]
    for operation, seconds in published["seconds"].items():
        figures = phases[_KINDS.get(operation, f"{operation}.execute")]
        assert figures["total_s"] == pytest.approx(seconds, abs=1e-3)
        assert figures["count"] == published["counts"][operation]


def test_occupancy_and_idle_time_are_the_published_ones(
    sidecar: SidecarProcess, record: dict[str, Any]
) -> None:
    """The shares of all models are the lane's busy time: its fraction of the window, and what
    is left."""
    published, window = record["published"], record["window_s"]
    busy = sum(sidecar.timing()["shares"].values())
    assert busy / window == pytest.approx(published["busy_fraction"], abs=1e-5)
    assert window - busy == pytest.approx(published["idle_s"], abs=1e-3)
    clients = {client for client, _, _ in record["submitted"]}
    mine = [sum(sidecar.timing(client)["shares"].values()) for client in clients]
    assert sum(mine) == pytest.approx(busy, abs=1e-3)


def test_waits_are_those_of_the_record(sidecar: SidecarProcess, record: dict[str, Any]) -> None:
    """Each client's waiting for its training calls, split by what the lane ran meanwhile,
    worked out from the record by hand."""
    lane = [(start, end) for _, start, end in record["lane"]]
    starts = {
        kind: [start for operation, start, _ in record["lane"] if operation == kind]
        for kind in ("forward_backward", "optim_step")
    }
    for kind, begun in starts.items():
        answer = sidecar.timing()
        waits = answer["waits"][kind]
        windows = [
            (submitted, start)
            for (_, submitted, _), start in zip(record["submitted"], begun, strict=True)
        ]
        total = sum(start - submitted for submitted, start in windows)
        busy = sum(
            max(0.0, min(end, start) - max(begin, submitted))
            for submitted, start in windows
            for begin, end in lane
        )
        assert answer["phases"][f"{kind}.queue_wait"]["total_s"] == pytest.approx(total, abs=1e-3)
        assert waits["self_s"] + waits["neighbors_s"] == pytest.approx(busy, abs=1e-3)
        assert waits["overhead_s"] == pytest.approx(total - busy, abs=1e-3)
    # A training step waits for the other client's; an optimizer step for its own as well.
    assert sidecar.timing()["waits"]["forward_backward"]["neighbors_s"] > 100
    assert sidecar.timing()["waits"]["optim_step"]["self_s"] == pytest.approx(303.609, abs=1e-3)


def test_each_clients_step_account_is_whole(sidecar: SidecarProcess) -> None:
    """The six parts add up to the wall, and nobody shared a batch."""
    for client in ("client-0", "client-1"):
        step = sidecar.timing(client)["step"]
        parts = ("mine_s", "shared_batch_s", "neighbors_s", "overhead_s", "persist_s", "client_s")
        assert sum(step[part] for part in parts) == pytest.approx(step["wall_s"], abs=1e-6)
        assert step["shared_batch_s"] == 0.0
        assert step["wall_s"] == pytest.approx(step["until"] - step["since"], abs=1e-6)
