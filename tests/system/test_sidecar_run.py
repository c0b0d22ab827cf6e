"""`lilo-sidecar run -- CMD`: the command comes first, and its timing is kept running beside it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from support.runs import Run, finished
from support.sidecar import TIMEOUT, refusal, wait_until


def test_command_finds_the_sidecar_and_its_status_is_the_result(tmp_path: Path) -> None:
    """The command learns socket and URL, which work; all of the sidecar's lines come through
    on stdout, the last one included; the status is the command's own."""
    script = """
import sys, time, urllib.request
from lilo_engine_hook import TimingObserver, _producer
_producer.FLUSH_TIMEOUT = 10.0  # a busy machine is no failure
observer = TimingObserver()
observer.span("m", "forward_backward", "gpu", 0.0, 1.0)
observer.close()
url = os.environ["LILO_TIMING_URL"]
assert b'"forward_backward.execute"' in urllib.request.urlopen(url + "/api/v1/timing").read()
sys.exit(7)
"""
    with Run(tmp_path, script) as run:
        assert run.process.wait(TIMEOUT) == 7
        said = {line["event"]: line for line in map(json.loads, run.stdout.rest())}
        assert len(run.stdout.lines) == len(said) == 3
        ready, environment = said["lilo_sidecar_ready"], said["environment"]
        last = said["lilo_critical_path"]
        assert (environment["socket"], environment["url"]) == (ready["socket"], ready["http"])
        assert last["reason"] == "shutdown"
        assert last["phases"]["forward_backward.execute"]["count"] == 1
        assert run.log.rest() == []
        assert not run.path.exists()


def test_sidecar_is_told_what_the_run_was_told(tmp_path: Path) -> None:
    """The state directory, absolute, and the users that may report; never a token, but where it
    is."""
    (tmp_path / "token").write_text("s3cret-word")
    options = ["--state-dir", "kept", "--allow-uid", "4242", "--allow-uid", "root"]
    options += ["--token-file", "token"]
    script = "import sys; sys.stdin.readline()"
    with Run(tmp_path, script, *options, stdin=subprocess.PIPE, cwd=tmp_path) as run:
        sidecar = run.sidecar()
        said = Path(f"/proc/{sidecar}/cmdline").read_bytes().decode().split("\0")
        assert said[said.index("--state-dir") + 1] == str(tmp_path / "kept")
        assert [said[at + 1] for at, word in enumerate(said) if word == "--allow-uid"] == [
            "0",
            "4242",
        ]
        assert said[said.index("--token-file") + 1] == str(tmp_path / "token")
        for process in (sidecar, run.process.pid, run.command["pid"]):
            for part in ("cmdline", "environ"):
                assert b"s3cret" not in Path(f"/proc/{process}/{part}").read_bytes()


def test_command_killed_by_a_signal_counts_as_in_a_shell(tmp_path: Path) -> None:
    """128 plus the signal's number."""
    status, _, _ = finished("--socket", tmp_path / "s", "--", "sh", "-c", "kill -KILL $$")
    assert status == 128 + signal.SIGKILL


@pytest.mark.parametrize(("command", "expected"), [("/missing/command", 127), ("/etc", 126)])
def test_command_that_cannot_be_run(tmp_path: Path, command: str, expected: int) -> None:
    """As in a shell: 127 where there is none, 126 where it is not executable."""
    status, _, err = finished("--socket", tmp_path / "s", "--", command)
    assert status == expected
    (line,) = err
    assert f"cannot run {command}: " in line


@pytest.mark.parametrize("arguments", [["run"], ["run", "--"], ["run", "echo", "hi"]])
def test_missing_command_is_explained(arguments: list[str]) -> None:
    """Without a command there is nothing to run, and the error says how to give one."""
    said = refusal(*arguments)
    assert "lilo-sidecar run [options] -- CMD" in said or "unrecognized arguments" in said


@pytest.mark.parametrize(
    "options",
    [
        ["--report-interval", "never"],
        ["--http", "nowhere"],
        ["--http", "0.0.0.0:0"],
        ["--socket", "/tmp/" + "x" * 120],
        ["--bogus"],
    ],
)
def test_usage_error_ends_the_run_before_the_command(tmp_path: Path, options: list[str]) -> None:
    """Options that can never work are an error right away; the command is not started."""
    refusal("run", *options, "--", "touch", tmp_path / "started")
    assert not (tmp_path / "started").exists()


def test_sidecar_that_dies_is_back_where_it_was(tmp_path: Path) -> None:
    """At the same socket and the same port; the command notices nothing, and what it reports
    afterwards is counted."""
    with Run(tmp_path, "import sys; sys.stdin.readline()", stdin=subprocess.PIPE) as run:
        first = run.sidecar()
        assert first is not None
        os.kill(first, signal.SIGKILL)
        second = wait_until(run.sidecar, lambda pid: pid not in (None, first))
        assert second is not None
        ready = wait_until(
            lambda: [line for line in list(run.stdout.lines) if "lilo_sidecar_ready" in line],
            lambda lines: len(lines) == 2,
        )
        assert json.loads(ready[0]) == json.loads(ready[1])
        assert "the sidecar ended (signal 9)" in run.log.wait_for(lambda line: "ended" in line)
        assert run.process.stdin is not None
        run.process.stdin.close()
        assert run.process.wait(TIMEOUT) == 0


def test_command_runs_without_a_sidecar_and_gets_it_later(tmp_path: Path) -> None:
    """Where the sidecar cannot start, the reason and one warning are shown, and the command
    runs all the same; as soon as the sidecar can start, it does."""
    obstacle = tmp_path / "timing.sock"
    obstacle.write_text("in the way")
    with Run(tmp_path, "import sys; sys.stdin.readline()", stdin=subprocess.PIPE) as run:
        assert run.command["url"] is None
        assert run.command["socket"] == str(obstacle)
        run.log.wait_for(lambda line: "is no socket" in line)
        run.log.wait_for(lambda line: "runs without timing" in line)
        warnings = [line for line in run.log.lines if "runs without timing" in line]
        assert len(warnings) == 1
        obstacle.unlink()
        wait_until(run.sidecar, lambda pid: pid is not None)
        assert run.process.stdin is not None
        run.process.stdin.close()
        assert run.process.wait(TIMEOUT) == 0


def test_killed_supervisor_leaves_no_sidecar_behind(tmp_path: Path) -> None:
    """However the run ends, its sidecar ends with it, and the socket is free for the next."""
    with Run(tmp_path, "import sys; sys.stdin.readline()", stdin=subprocess.PIPE) as run:
        assert run.sidecar() is not None
        run.process.kill()
        wait_until(run.path.exists, lambda exists: not exists)
