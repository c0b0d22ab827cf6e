"""The `lilo_critical_path` lines: the figures for whoever only keeps the log."""

from __future__ import annotations

import json
from typing import Final

import trio

from .core.timing import Timing
from .output import LineWriter
from .state.recorder import Recorder

EVENT: Final = "lilo_critical_path"
REPORT_INTERVAL: Final = 300.0
"""Seconds without a fetch of the aggregate after which a line is printed."""


class Reporter:
    """Prints the aggregate since the trainer's start: when nobody fetched it for an interval,
    when a trainer was replaced, and at shutdown. Runs on the daemon's one thread; nothing
    here blocks.
    """

    def __init__(
        self,
        core: Recorder,
        lines: LineWriter,
        interval: float = REPORT_INTERVAL,
    ) -> None:
        self._core = core
        self._lines = lines
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
        self._print("shutdown", self._core.lifetime())

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
            timing = self._core.lifetime()
            if timing.uptime_s is not None:
                self._print("interval", timing)

    def _print(self, reason: str, timing: Timing) -> None:
        journal = self._core.status._asdict()
        line = {"event": EVENT, "reason": reason, **timing.to_json(), "journal": journal}
        self._lines.write(json.dumps(line, allow_nan=False))
