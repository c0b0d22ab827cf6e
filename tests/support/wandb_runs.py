"""Real W&B runs, offline, for tests; and the reports that go into them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lilo_timing import flush_critical_path, log_critical_path
from support.timing_server import TIMEOUT, Answer, Request, TimingServer, ok, phase, timing
from support.wandb_history import history

EXECUTE = "lilo/forward_backward.execute"


class Runs:
    """Makes runs, and reads what they stored."""

    def __init__(self, directory: Path) -> None:
        import wandb

        self.wandb = wandb
        self._directory = directory
        self._settings = wandb.Settings(
            mode="offline",
            console="off",
            silent=True,
            x_disable_meta=True,
            x_disable_stats=True,
            x_disable_machine_info=True,
        )

    def start(self, **arguments: Any) -> Any:
        return self.wandb.init(
            project="p", dir=str(self._directory), settings=self._settings, **arguments
        )

    def rows(self, run: Any) -> list[dict[str, Any]]:
        """Finish the run; its rows by name, without W&B's own keys but `_step`."""
        run.finish()
        return [
            {name: value for name, value in row.items() if name not in ("_runtime", "_timestamp")}
            for row in history(run.settings.sync_file)
        ]


def intervals(*executions: tuple[int, float, float]) -> Callable[[Request], Answer]:
    """One execute phase for each answer, as (count, total_s, max_s); the last one again and
    again."""
    phases = itertools.chain(executions, itertools.repeat(executions[-1]))
    return lambda _: ok(timing({"forward_backward.execute": phase(*next(phases))}))


def report(server: TimingServer, model_id: str = "m", **arguments: Any) -> None:
    """Report, and wait until that is over."""
    log_critical_path(model_id, base_url=server.url, **arguments)
    assert flush_critical_path(TIMEOUT)


def figures(row: dict[str, Any], key: str = EXECUTE) -> tuple[float, float, float, float]:
    """count, total, mean and max in a row."""
    count, total, mean, maximum = (
        row[f"{key}.{stat}"] for stat in ("count", "total_s", "mean_s", "max_s")
    )
    return count, total, mean, maximum


class Interrupted:
    """A run whose loop commits at the worst moment: after the row was asked for, before the
    report is in it."""

    def __init__(self, run: Any) -> None:
        self._run = run
        self.interrupt = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)

    def log(self, metrics: dict[str, Any], commit: bool) -> None:
        if self.interrupt:
            self.interrupt = False
            self._run.log({"loss": 1.0})
        self._run.log(metrics, commit=commit)
