"""Signals to `lilo-sidecar run` are for its command."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.runs import REPORT, Run
from support.sidecar import COMMAND, TIMEOUT, Output

FORWARDED = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")


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
