"""The demonstration: its table agrees with a second opinion, and nothing of it stays behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from support.accumulator import FILE_VARIABLE, assert_agree, read_all
from support.marked_processes import MARK, assert_all_end

TIMEOUT = 60.0
"""What the demonstration may take; these runs are shorter than its default."""


@pytest.fixture
def here() -> Iterator[Path]:
    """Where a demonstration keeps its files. A short path: sockets are in it."""
    directory = Path(tempfile.mkdtemp(prefix="lt-"))
    yield directory
    shutil.rmtree(directory)


def start(here: Path, *options: str) -> subprocess.Popen[str]:
    tests = str(Path(__file__).parents[1])
    environment = {
        **os.environ,
        "TMPDIR": str(here),
        "PYTHONPATH": os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")]),
        "PYTHONUNBUFFERED": "1",
        FILE_VARIABLE: str(here),
        MARK: here.name,
    }
    return subprocess.Popen(
        [sys.executable, "-m", "lilo_local.demo", *options],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def assert_nothing_left(here: Path) -> None:
    """No process, no socket, no file but the accumulators'."""
    assert_all_end(here.name)
    assert [path.name for path in here.iterdir() if path.suffix != ".json"] == []


def test_the_table_agrees_with_an_independent_accumulator(here: Path, tmp_path: Path) -> None:
    """Count for count, for every tenant and for all together; every tenant reported its steps
    and learned; all ended cleanly."""
    figures_file = tmp_path / "table.json"
    observer = "support.accumulator:from_environment"
    options = ("--seconds", "5", "--observer", observer, "--json", str(figures_file))
    with start(here, *options) as demo:
        output, errors = demo.communicate(timeout=TIMEOUT)
    assert (demo.returncode, errors) == (0, "")
    assert_nothing_left(here)
    figures = json.loads(figures_file.read_text())
    accumulated = read_all(here)
    assert list(figures["tenants"]) == ["heavy", "light", "tiny"]
    for name, tenant in figures["tenants"].items():
        assert tenant["steps"] >= 2
        assert tenant["reports"] >= 2
        # On a busy machine there are few steps in the time; each makes it fall clearly.
        assert tenant["losses"][-1] < tenant["losses"][0] - 0.3
        assert_agree(tenant["phases"], accumulated[tenant["model_id"]], answers=tenant["reports"])
        assert f"{name:5}  {tenant['steps']} steps, loss" in output
    # All together in one answer: to the last place.
    assert_agree(figures["trainers"]["trainer-1"], accumulated["*"])
    light, heavy = (figures["tenants"][name]["phases"] for name in ("light", "heavy"))
    assert light["forward_backward.execute"]["mean_batch"] > 1
    assert heavy["forward_backward.execute"]["mean_batch"] == 1
    count = heavy["forward_backward.execute"]["count"]
    (row, *_) = [
        line for line in output.splitlines() if line.split()[:2] == ["ran", f"{count:.0f}"]
    ]
    assert row.split()[-1] == "1.00"


@pytest.mark.parametrize("moment", ["starting", "step   1"])
def test_an_interrupt_ends_everything(here: Path, moment: str) -> None:
    """Ctrl-C while it starts, or while the tenants train, leaves nothing running and no file.
    Meanwhile the page is where it is said to be, and its figures for who has the token."""
    with start(here, "--seconds", "30") as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if line.startswith("watch "):
                _, _, _, url, *_, token = line.split()
                with httpx.Client(timeout=TIMEOUT, trust_env=False) as client:
                    assert "<title>" in client.get(url).text
                    figures = client.get(
                        f"{url}api/v1/overview", headers={"Authorization": f"Bearer {token}"}
                    )
                assert figures.json()["trainer"]["connected"]
            if moment in line:
                break
        demo.send_signal(signal.SIGINT)
        output, errors = demo.communicate(timeout=TIMEOUT)
    assert demo.returncode == 128 + signal.SIGINT
    assert errors == "stopped; nothing is left running\n"
    assert "Where the time went" not in output
    assert_nothing_left(here)
