"""Facts about this process that the standard library does not give: its boot id, its real start."""

from __future__ import annotations

import os
import time

_IMPORTED_AT = time.time()


def new_boot_id() -> str:
    """A name no other process, and no other life of this one, has."""
    return os.urandom(8).hex()


def process_started() -> float:
    """When the kernel started this process, in Unix seconds.

    From /proc (field 22 of ``stat`` counts clock ticks since boot; proc(5)), to a hundredth
    of a second. Where there is no /proc: when this module was imported.
    """
    try:
        with open("/proc/self/stat", encoding="ascii", errors="replace") as file:  # noqa: PTH123 - pathlib takes longer to import than all of this
            stat = file.read()
        # The second field is the command in parentheses and may hold spaces and parentheses.
        ticks = int(stat.rpartition(")")[2].split()[19])
        since_boot = ticks / os.sysconf("SC_CLK_TCK")
        return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - since_boot)
    except (OSError, ValueError, IndexError, AttributeError):
        return _IMPORTED_AT


def default_socket_path() -> str:
    """``LILO_TIMING_SOCKET``, or a place that trainer and sidecar of one user agree on."""
    return os.environ.get("LILO_TIMING_SOCKET") or f"/tmp/lilo-timing-{os.getuid()}/timing.sock"  # noqa: S108 - the directory is the user's own, 0700


def is_secondary_rank() -> bool:
    """Whether this process is a rank other than 0 of a distributed job (``RANK``, as torchrun
    and its kin set it). Ranks run the same commands; only one of them may report."""
    return os.environ.get("RANK", "0").strip() not in ("", "0")
