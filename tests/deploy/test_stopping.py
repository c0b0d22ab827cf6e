"""How processes of a deployment are ended."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

from lilo_local.demo import processes
from lilo_local.demo.deployment import Deployment
from lilo_local.demo.processes import ChildFailedError, Inbox, Line
from support.marked_processes import MARK, assert_all_end

SLEEP = "import time; time.sleep(600)"
STUBBORN = f"""
import signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "{SLEEP}"])
print('{{"event": "up"}}', flush=True)
child.wait()
"""


def run_both(inbox: Inbox) -> None:
    """A deployment of two processes, left as soon as both are up."""
    with Deployment(trainers=0, tenants=[], inbox=inbox) as deployment:
        deployment.start("obedient", [sys.executable, "-c", SLEEP])
        deployment.start("stubborn", [sys.executable, "-c", STUBBORN])
        while inbox.get(10) != Line("stubborn", {"event": "up"}):
            pass


def test_what_does_not_end_is_killed_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that ignores its end is killed with what it started, and leaving says so; one
    that obeys is not named. No file stays."""
    monkeypatch.setattr(processes, "STOP_TIMEOUT", 0.5)
    monkeypatch.setenv(MARK, tmp_path.name)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)  # chosen anew, from TMPDIR
    with pytest.raises(ChildFailedError, match=r"^stubborn did not end .* had to be killed$"):
        run_both(Inbox())
    assert_all_end(tmp_path.name)
    assert list(tmp_path.iterdir()) == []
