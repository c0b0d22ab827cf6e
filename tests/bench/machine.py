"""The machine the figures are of, and which core does what."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_CORES = sorted(os.sched_getaffinity(0))
QUIET = 0.5
"""A load average under which nobody else works to speak of."""


def pin_here() -> None:
    """Keep this process, and those it starts from now on, on the first core."""
    _keep_on(_CORES[:1])


def leave_free() -> None:
    """Let this process run on every core again."""
    _keep_on(_CORES)


def _keep_on(cores: Sequence[int]) -> None:
    for thread in Path("/proc/self/task").iterdir():  # the system keeps threads, not processes
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.sched_setaffinity(int(thread.name), cores)


def pin_there(pid: int) -> None:
    """Keep a process on the last core: away from this one, where there are two."""
    os.sched_setaffinity(pid, {_CORES[-1]})


def cpu_seconds(pid: int) -> float:
    """CPU time that another process has used, to the nanosecond. What else runs on its core does
    not count, so figures in it hold on a busy machine, too."""
    return time.clock_gettime((~pid << 3) | 2)  # what clock_getcpuclockid(3) computes


def describe() -> dict[str, Any]:
    """The machine in words, and how busy it is now."""
    return {
        "processor": _processor(),
        "cores": len(_CORES),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {
            name: importlib.metadata.version(name)
            for name in ("msgpack", "trio", "hypercorn", "starlette", "torch", "opentelemetry-sdk")
        },
        "load": [round(load, 2) for load in os.getloadavg()],
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
