"""`lilo-sidecar check` as a command: its status, its words, its streams, and no trace of it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from lilo_engine_hook import wire
from lilo_sidecar.check.gather import READER
from lilo_sidecar.core.timing import AGGREGATE
from support.checking import check, lines_of_check
from support.producer import Producer
from support.sidecar import COMMAND, SidecarProcess


def test_all_is_well(sidecar: SidecarProcess, trainer: Producer) -> None:
    """With a sidecar that is told nothing but its socket, and a trainer that reports: status 0, and
    one line that says so. The check leaves no trace in what it looks at."""
    before = {name: sidecar.health()[name] for name in ("producers", "faults", "ingest")}
    done = check("--socket", sidecar.socket)
    assert (done.status, done.codes, done.document["status"]) == (0, [], "ok")
    assert done.document["url"] == sidecar.url
    (line,) = lines_of_check("--socket", sidecar.socket)
    assert line.startswith(f"All is well: lilo-sidecar 0.1.0 at {sidecar.url}")
    assert "2 events counted" in line

    def traces(health: dict[str, Any]) -> bool:
        return {name: health[name] for name in before} == before

    sidecar.wait_for(traces)


def test_command_is_a_process_with_an_exit_status(tmp_path: Path) -> None:
    """As a script runs it: the findings on stdout, nothing on stderr, status 2 when there is
    nobody to ask."""
    done = subprocess.run(
        [*COMMAND, "check", "--socket", tmp_path / "timing.sock"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (2, "")
    (line,) = done.stdout.splitlines()
    assert line.startswith("no_socket: No sidecar has its socket at ")


def test_terminal_with_few_characters(tmp_path: Path) -> None:
    """A path that it cannot show is shown all the same."""
    done = subprocess.run(
        [*COMMAND, "check", "--socket", tmp_path / "t\u00efming.sock"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert (done.returncode, done.stderr) == (2, "")
    assert r"t\xefming.sock" in done.stdout


def test_reader_that_has_read_enough(tmp_path: Path) -> None:
    """As in `check | head -0`: no traceback, and not the status of a deployment that is well."""
    with subprocess.Popen(
        [*COMMAND, "check", "--socket", tmp_path / "timing.sock"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == ("", 2)


def test_figures_are_those_since_the_trainers_start(
    sidecar: SidecarProcess, trainer: Producer
) -> None:
    """Whoever ends an interval meanwhile takes nothing from the check, nor it from them."""
    lost = wire.encode_batch(trainer.sent + 1, 3, 0, wire.join([]))
    trainer.socket.sendall(lost)
    trainer.acknowledged()
    sidecar.timing(reset=True)
    assert "3 events" in check("--socket", sidecar.socket).says("dropped")
    answer = sidecar.http.get("/api/v1/timing", params={"reader": READER, "reset": "true"}).json()
    assert answer["model_id"] == AGGREGATE
    assert answer["delivery"]["dropped"] == 3
    assert sidecar.timing()["delivery"]["dropped"] == 0
