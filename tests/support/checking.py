"""`lilo-sidecar check`, run here or as another user, what it found, and sidecars for it to find."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lilo_sidecar.cli import main
from lilo_sidecar.socket_probe import REFUSAL_TIMEOUT
from support.forked import ForkedProcess
from support.sidecar import SidecarProcess, running
from support.timing_server import Answer, Request, TimingServer, ok, timing_server

AS_ANOTHER = """
import os, pkgutil, sys
import encodings.ascii, encodings.latin_1, encodings.idna, httpx, httpcore, lilo_sidecar.check
import anyio, httpcore._backends.sync, lilo_sidecar.cli, lilo_sidecar.options, trio
import lilo_sidecar.socket_probe
lilo_sidecar.socket_probe.REFUSAL_TIMEOUT = float(sys.argv.pop(1))
os.setgroups([])
os.setuid(int(sys.argv.pop(1)))
sys.exit(lilo_sidecar.cli.main())
"""
"""Everything is imported while it may still read the installation."""


@dataclass(frozen=True)
class Checked:
    """What a check came to."""

    status: int
    document: dict[str, Any]

    @property
    def codes(self) -> list[str]:
        return [finding["code"] for finding in self.document["findings"]]

    def says(self, code: str) -> str:
        """All of that one finding's text."""
        (found,) = (each for each in self.document["findings"] if each["code"] == code)
        return " ".join(found[part] for part in ("what", "why", "do"))


def check(*arguments: str | Path) -> Checked:
    """Run the command in this process."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        status = main(["check", "--json", *map(str, arguments)])
    return Checked(status, json.loads(out.getvalue()))


def lines_of_check(*arguments: str | Path) -> list[str]:
    """What it says to people."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        main(["check", *map(str, arguments)])
    return out.getvalue().splitlines()


def check_as(uid: int, *arguments: str | Path, patience: float = REFUSAL_TIMEOUT) -> Checked:
    """Run it as another user. Only root can. A sidecar that turns that one away is given
    ``patience`` seconds to say so."""
    command = [sys.executable, "-c", AS_ANOTHER, str(patience), str(uid), "check", "--json"]
    done = subprocess.run(
        [*command, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd="/",
        timeout=20,
    )
    assert done.stderr == ""
    return Checked(done.returncode, json.loads(done.stdout))


@contextlib.contextmanager
def sidecar_at(path: Path, *arguments: str | Path) -> Iterator[SidecarProcess]:
    """A sidecar with its socket there."""
    with running(ForkedProcess("serve", "--socket", path, *arguments)) as sidecar:
        yield sidecar


@contextlib.contextmanager
def altered(
    answers: dict[str, dict[str, Any]], alter: Callable[[dict[str, dict[str, Any]]], None]
) -> Iterator[TimingServer]:
    """A server that gives a sidecar's own answers (by path), altered: for what no test can bring a
    sidecar to, or not soon."""
    alter(answers)

    def answering(request: Request) -> Answer:
        return ok(answers[request.path])

    with timing_server(answering) as server:
        yield server
