"""Finding the processes of a deployment, whatever became of their parents."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

MARK = "LILO_TEST_MARK"
"""An environment variable that all processes of a test inherit."""


def marked(value: str) -> dict[int, str]:
    """The living processes whose environment has `MARK` set to ``value``: command by id."""
    found = {}
    needle = f"{MARK}={value}".encode()
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if needle in environment.read_bytes().split(b"\0"):
                command = (environment.parent / "cmdline").read_bytes()
                found[int(environment.parent.name)] = command.replace(b"\0", b" ").decode()
    return found


def assert_all_end(value: str, timeout: float = 10.0) -> None:
    """None is left within ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while left := marked(value):
        assert time.monotonic() < deadline, f"still there: {left}"
        time.sleep(0.02)
