"""Processes that report through a hook, for tests of what arrives."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

from lilo_engine_hook import wire
from support.receiver import Receiver


def seqs(far: Receiver) -> list[int | None]:
    """The sequence ids of the begins received."""
    return [event.seq for event in far.events if isinstance(event, wire.Begin)]


def trainer(
    script: str, path: Path, *, patient: bool = True, **kwargs: object
) -> subprocess.Popen[str]:
    """A process that reports to ``path``; ``script`` finds an `observer` and an `Operation`. A
    ``patient`` one delivers at its end for longer than a second, if it must: a busy machine is no
    failure."""
    head = f"""
        import os, sys, time
        sys.path.insert(0, {str(Path(__file__).parents[1])!r})
        from support.operations import Operation
        from lilo_engine_hook import TimingObserver, _producer
        if {patient}:
            _producer.FLUSH_TIMEOUT = 20.0
        observer = TimingObserver({str(path)!r})
    """
    process: subprocess.Popen[str] = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(head) + textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **kwargs,  # type: ignore[call-overload]
    )
    return process


def finished(process: subprocess.Popen[str]) -> str:
    """Its output; fails unless it exits with 0 and a silent stderr."""
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")
    return out
