"""`lilo-sidecar run -- CMD`: the command comes first, and its timing is kept running beside it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lilo_engine_hook import wire
from support.producer import hello_frame
from support.sidecar import COMMAND, TIMEOUT, Output, launch, refusal, wait_until

FORWARDED = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
REPORT = """
import json, os
print(json.dumps({"event": "environment", "pid": os.getpid(), "group": os.getpgrp(),
    "socket": os.environ["LILO_TIMING_SOCKET"], "url": os.environ.get("LILO_TIMING_URL")}),
    flush=True)
"""


def finished(*arguments: str | Path, **kwargs: Any) -> tuple[int, list[str], list[str]]:
    """Run to the end: status, stdout, stderr."""
    process = launch("run", *arguments, **kwargs)
    out, err = process.communicate(timeout=TIMEOUT)
    return process.returncode, out.splitlines(), err.splitlines()


@contextlib.contextmanager
def none_ignored() -> Iterator[None]:
    """What is started meanwhile has the default action for every signal, though these tests may
    run under nohup: a handler, other than ignoring, ends with the start of another program."""
    numbers = [getattr(signal, name) for name in FORWARDED]
    ignored = [number for number in numbers if signal.getsignal(number) == signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, lambda number, frame: None)
    try:
        yield
    finally:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)


def listener_of(path: Path) -> int | None:
    """The process that answers on the socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(TIMEOUT)
        try:
            probe.connect(os.fspath(path))
            probe.sendall(hello_frame("probe", "backend"))
            answers = list(wire.FrameBuffer().feed(probe.recv(4096)))
        except OSError:
            return None
        if not answers:
            return None
        data = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        return int.from_bytes(data[:4], sys.byteorder)


class Run:
    """A run whose command is a Python script that has said where it is."""

    def __init__(self, tmp_path: Path, script: str, *options: str | Path, **kwargs: Any) -> None:
        code = REPORT + script
        self.path = tmp_path / "timing.sock"
        self.process = launch(
            *("run", "--socket", self.path, *options, "--", sys.executable, "-c", code), **kwargs
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.stdout, self.log = Output(self.process.stdout), Output(self.process.stderr)
        self.command = json.loads(self.stdout.wait_for(lambda line: '"environment"' in line))

    def sidecar(self) -> int | None:
        """The process that answers on the socket."""
        return listener_of(self.path)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()


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


def test_signals_reach_the_command_and_not_the_sidecar(tmp_path: Path) -> None:
    """Every signal that is for the command gets there, once; the sidecar, in a session of its
    own, stays to take what the command has to say."""
    script = """
import signal, sys
def say(number, frame):
    line = json.dumps({"event": "signal", "name": signal.Signals(number).name}) + "\\n"
    os.write(1, line.encode())  # the next signal may come within a print, which is no place for one
for name in sys.argv[1:]:
    signal.signal(getattr(signal, name), say)
print(json.dumps({"event": "prepared"}), flush=True)
sys.stdin.readline()
"""
    script = script.replace("sys.argv[1:]", repr(FORWARDED))
    # In a session of its own: what a keyboard sends to a terminal's foreground group the command
    # has got already, and these tests may be in that group.
    own_session: dict[str, Any] = {"stdin": subprocess.PIPE, "start_new_session": True}
    with none_ignored(), Run(tmp_path, script, **own_session) as run:
        run.stdout.wait_for(lambda line: "prepared" in line)
        sidecar = run.sidecar()
        assert sidecar is not None
        assert os.getsid(sidecar) == sidecar != os.getsid(run.command["pid"])
        for name in FORWARDED:
            run.process.send_signal(getattr(signal, name))
            run.stdout.wait_for(lambda line, name=name: f'"name": "{name}"' in line)  # type: ignore[misc]
        assert run.process.stdin is not None
        run.process.stdin.write("\n")
        run.process.stdin.close()
        assert run.process.wait(TIMEOUT) == 0
        heard = [line for line in run.stdout.rest() if '"signal"' in line]
        assert len(heard) == len(FORWARDED)
        assert run.log.rest() == []


def test_signal_that_ends_the_command_ends_the_run(tmp_path: Path) -> None:
    """SIGTERM to the run: the command dies of it, then the sidecar stops in good order."""
    with Run(tmp_path, "import time; time.sleep(600)") as run:
        run.process.send_signal(signal.SIGTERM)
        assert run.process.wait(TIMEOUT) == 128 + signal.SIGTERM
        assert json.loads(run.stdout.rest()[-1])["reason"] == "shutdown"


SLOWLY = """
import signal, sys, time
import trio
from lilo_sidecar.cli import main
start = trio.lowlevel.open_process
async def slowly(command, **options):
    process = await start(command, **options)
    if "lilo_sidecar" not in command:
        await trio.sleep(0.5)
    return process
trio.lowlevel.open_process = slowly
sys.exit(main())
"""
"""A run that is held up between its command's start and the moment at which it knows of it."""


def test_signal_while_the_command_starts_reaches_it(tmp_path: Path) -> None:
    """It is for the command, which may have begun to work, though the run does not know yet."""
    code = REPORT + "import time; time.sleep(600)"
    process = subprocess.Popen(
        [
            *(sys.executable, "-P", "-c", SLOWLY, "run", "--socket", str(tmp_path / "timing.sock")),
            *("--", sys.executable, "-c", code),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    stdout = Output(process.stdout)
    try:
        stdout.wait_for(lambda line: '"environment"' in line)
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.wait()


def test_ignored_signal_stays_ignored(tmp_path: Path) -> None:
    """Under nohup, a hang-up ends neither the run nor its command."""
    script = "import signal; print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)"
    process = subprocess.run(
        [
            *("sh", "-c", 'trap "" HUP; exec "$@"', "sh", *COMMAND),
            *("run", "--socket", str(tmp_path / "s"), "--", sys.executable, "-c", script),
        ],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert "True" in process.stdout.splitlines()


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
