"""Where `lilo-sidecar run` has its socket and its state, and what becomes of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.runs import REPORT, finished, listener_of
from support.sidecar import COMMAND, TIMEOUT, Output, launch, wait_until


def test_runs_of_one_user_do_not_share_a_socket(tmp_path: Path) -> None:
    """Without --socket, each run has one of its own."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    environment.pop("LILO_TIMING_SOCKET", None)
    command = ["run", "--", sys.executable, "-c", REPORT + "import sys; sys.stdin.read()"]
    runs = [launch(*command, stdin=subprocess.PIPE, env=environment) for _ in range(2)]
    results = [run.communicate(timeout=TIMEOUT) for run in runs]
    ready = [json.loads(out.splitlines()[0]) for out, _ in results]
    assert len({line["socket"] for line in ready}) == 2
    assert [err for _, err in results] == ["", ""]


STATE = """
import os, pathlib, sys
state = pathlib.Path(os.environ["LILO_TIMING_SOCKET"]).with_suffix(".state")
state.mkdir(mode=0o700, exist_ok=True)
print(sorted(path.name for path in state.iterdir() if "77" in path.name), state, flush=True)
for name in ("snapshot-1", "journal-1", "lock", *sys.argv[1:]):
    (state / name).touch()
"""
"""A command that looks for what others left in the state directory, and leaves something there."""


def without_socket() -> dict[str, str]:
    """The environment of somebody who named no socket."""
    return {name: value for name, value in os.environ.items() if name != "LILO_TIMING_SOCKET"}


def test_state_of_a_run_goes_with_it() -> None:
    """Where the socket was the run's own, nobody would find it again; what a sidecar does not
    put there is left alone."""

    def state_of(*names: str) -> Path:
        command = (sys.executable, "-c", STATE, *names)
        status, out, err = finished("--", *command, env=without_socket())
        assert (status, err) == (0, [])
        (line,) = [line for line in out if line.startswith("[")]
        return Path(line.partition(" ")[2])

    assert not state_of().exists()
    kept = state_of("of somebody else")
    assert [path.name for path in kept.iterdir()] == ["of somebody else"]
    (kept / "of somebody else").unlink()
    kept.rmdir()


def test_state_that_a_killed_run_left_is_not_taken_up() -> None:
    """A later run with the same process id has nothing to do with it."""
    left = (
        f"d=/tmp/lilo-timing-{os.getuid()}/run-$$.state; mkdir -p $d; touch $d/journal-77.aside; "
    )
    process = subprocess.run(
        [
            *("sh", "-c", left + 'exec "$@"', "sh", *COMMAND),
            *("run", "--", sys.executable, "-c", STATE),
        ],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        env=without_socket(),
    )
    assert process.stderr == ""
    assert any(line.startswith("[] ") for line in process.stdout.splitlines())


def test_what_a_killed_run_left_goes_with_the_next() -> None:
    """Run and sidecar, both killed at once: their socket, their address, their state."""
    command = (sys.executable, "-c", REPORT + "import sys; sys.stdin.readline()")
    streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    killed = launch("run", "--", *command, env=without_socket(), **streams)
    assert killed.stdin is not None
    assert killed.stdout is not None
    stdout = Output(killed.stdout)
    try:
        said = stdout.wait_for(lambda line: '"environment"' in line)
        path = Path(json.loads(said)["socket"])
        sidecar = listener_of(path)
        assert sidecar is not None
        os.kill(sidecar, signal.SIGSTOP)  # it would tidy up when the run is gone
        killed.kill()
        os.kill(sidecar, signal.SIGKILL)
        killed.wait(TIMEOUT)
        wait_until(lambda: listener_of(path), lambda pid: pid is None)
        left = sorted(each.name for each in path.parent.glob(f"{path.stem}.*"))
        assert left == [path.name, f"{path.name}.url", f"{path.stem}.state"]
        assert finished("--", "true", env=without_socket())[0] == 0
        assert list(path.parent.glob(f"{path.stem}.*")) == []
    finally:
        killed.kill()
        killed.stdin.close()
        stdout.rest()


@pytest.mark.parametrize("options", [("--socket", "timing.sock"), ("--state-dir", "timing.state")])
def test_state_of_a_named_place_is_kept(tmp_path: Path, options: tuple[str, str]) -> None:
    """Whoever names the socket, or the directory, comes back for it."""
    state = tmp_path / "timing.state"
    state.mkdir(mode=0o700)
    status, _, _ = finished(*options, "--", "true", env=without_socket(), cwd=tmp_path)
    assert status == 0
    assert state.is_dir()
