"""The `lilo_critical_path` lines: the figures for whoever only keeps the log."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

import trio

from .critical_path import CriticalPath
from .output import LineWriter
from .timing import Timing

REPORT_INTERVAL: Final = 300.0
"""Seconds without a fetch of the aggregate after which a line is printed."""


class Reporter:
    """Prints the aggregate since the trainer's start: when nobody fetched it for an interval,
    when a trainer was replaced, and at shutdown. Runs on the daemon's one thread; nothing
    here blocks.
    """

    def __init__(
        self,
        core: CriticalPath,
        lines: LineWriter,
        clock: Callable[[], float],
        interval: float = REPORT_INTERVAL,
    ) -> None:
        self._core = core
        self._lines = lines
        self._clock = clock
        self._interval = interval
        self._quiet_since = 0.0  # on trio's clock; set when `run` begins

    def aggregate_fetched(self) -> None:
        """Somebody has the aggregate: the interval begins anew."""
        self._quiet_since = trio.current_time()

    def trainer_ended(self, timing: Timing) -> None:
        """A trainer was replaced; ``timing`` is the last its aggregate came to."""
        self._print("trainer_restarted", timing)

    def shutdown(self) -> None:
        """The last line."""
        self._print("shutdown", self._core.lifetime(self._clock()))

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Print a line at the end of every interval without a fetch, once a trainer was heard."""
        self._quiet_since = trio.current_time()
        task_status.started()
        while True:
            due = self._quiet_since + self._interval
            if trio.current_time() < due:
                await trio.sleep_until(due)
                continue
            self._quiet_since = due
            timing = self._core.lifetime(self._clock())
            if timing.uptime_s is not None:
                self._print("interval", timing)

    def _print(self, reason: str, timing: Timing) -> None:
        line = {"event": "lilo_critical_path", "reason": reason, **timing.to_json()}
        self._lines.write(json.dumps(line, allow_nan=False))
