"""`lilo-sidecar trace` beside a real sidecar and a trainer under load."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from lilo_engine_hook import TimingObserver, _producer
from support.faults import assert_all_applied, load, progressed
from support.load import KIND
from support.operations import Operation
from support.sidecar import COMMAND, TIMEOUT, SidecarProcess, start_sidecar, wait_until
from support.snippets import commands
from support.traces import Trace


def traced(sidecar: SidecarProcess, *arguments: str) -> Trace:
    """What it writes on stdout, which is a trace and nothing else."""
    command = [*COMMAND, "trace", "--socket", str(sidecar.socket), "-o", "-", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    assert ended.returncode == 0, ended.stderr
    return Trace(json.loads(ended.stdout)["traceEvents"])


def test_a_trainer_under_load_is_traced_and_feels_nothing_of_it(tmp_path: Path) -> None:
    """Again and again while it reports: every call is in the sidecar's counts all the same, and
    in the end every execution and every wait is in the trace."""
    with start_sidecar(tmp_path) as sidecar, load(sidecar.socket) as trainer:
        for _ in range(4):
            progressed(sidecar)
            assert traced(sidecar, "--last", "1s").slices
        report = trainer.tell("stop")
        assert_all_applied(sidecar, report)
        trace = traced(sidecar, "--last", "1h")
        one = traced(sidecar, "--last", "1h", "--model", "m-1")
        assert trainer.close() == ""
    for model, phases in report["phases"].items():
        if model != "*":
            assert Counter(each.name for each in trace.on(model)) == phases
    assert Counter(each.name for each in one.on("m-1")) == report["phases"]["m-1"]
    assert {each.track for each in one.slices} == {"gpu", "m-1"}
    assert len(one.on("gpu")) == len(trace.on("gpu"))
    assert {each.group for each in trace.slices} == {
        f"lanes of trainer {trainer.process.pid}",
        f"models of trainer {trainer.process.pid}",
    }


def test_commands_of_the_page_do_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is run as it is there, by a reader whose model is called `my-model`."""
    monkeypatch.setattr(_producer, "FLUSH_TIMEOUT", TIMEOUT)  # a busy machine is no failure
    with start_sidecar(tmp_path) as sidecar:
        observer = TimingObserver(sidecar.socket)
        for model in ("my-model", "another"):
            observer.begin(operation := Operation(model, 1, KIND))
            ids = [operation.request_id]
            observer.span([model], KIND, "gpu", time.time(), request_ids=ids)
        observer.close()
        environment = {
            **os.environ,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "LILO_TIMING_SOCKET": str(sidecar.socket),
        }
        for command in commands("TRACE.md"):
            subprocess.run(command, shell=True, check=True, cwd=tmp_path, env=environment)
    whole = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {each.track for each in Trace(whole).slices} == {"gpu", "my-model", "another"}
    mine = (tmp_path / "mine.json").read_text()
    assert {each.track for each in Trace(json.loads(mine)["traceEvents"]).slices} == {
        "gpu",
        "my-model",
    }
    assert "another" not in mine


def test_it_gives_way_to_whoever_trains(tmp_path: Path) -> None:
    """Its priority is below that of whoever started it, here while it waits for a reader."""
    file = tmp_path / "pipe"
    os.mkfifo(file)
    with start_sidecar(tmp_path) as sidecar, load(sidecar.socket):
        progressed(sidecar)
        command = [*COMMAND, "trace", "--socket", str(sidecar.socket), "-o", str(file)]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            wait_until(
                lambda: os.getpriority(os.PRIO_PROCESS, process.pid),
                lambda priority: priority == min(19, os.getpriority(os.PRIO_PROCESS, 0) + 10),
            )
            assert Trace(json.loads(file.read_text())["traceEvents"]).slices
            assert process.wait(TIMEOUT) == 0
        finally:
            process.kill()
            process.wait()


def test_a_reader_that_leaves_is_told_of_in_a_line(tmp_path: Path) -> None:
    """`trace -o - | head`, say."""
    with start_sidecar(tmp_path) as sidecar, load(sidecar.socket):
        progressed(sidecar)
        reading, writing = os.pipe()
        os.close(reading)
        command = [*COMMAND, "trace", "--socket", str(sidecar.socket), "-o", "-"]
        ended = subprocess.run(
            command, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=TIMEOUT
        )
        os.close(writing)
    assert ended.returncode == 2
    assert ended.stderr == "lilo-sidecar: error: stdout cannot be written: Broken pipe\n"
