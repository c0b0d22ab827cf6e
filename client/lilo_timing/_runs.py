"""Which W&B run a report is for. wandb is never imported: whoever has a run has imported it."""

from __future__ import annotations

import os
import sys
from typing import Any

Run = Any
"""A `wandb.Run`, or what behaves like one: `log`, `define_metric`, `step`, `summary`."""


class SeveralRunsError(Exception):
    """More than one run is live."""


def live_run() -> Run | None:
    """The one live run of this process, None without one. No I/O.

    ``wandb.run`` alone does not tell: it may be an old run while newer ones are live, or None
    while runs made with ``reinit="create_new"`` are. Raises `SeveralRunsError`.
    """
    runs = _live_runs()
    if len(runs) > 1:
        raise SeveralRunsError(f"{len(runs)} W&B runs are live")
    return runs[0] if runs else None


def is_finished(run: Run) -> bool:
    """Whether the run takes nothing any more. wandb offers no public way to ask; asking a
    finished run for anything else blocks for 30 s."""
    return getattr(run, "_is_finished", False) is True


def _live_runs() -> list[Run]:
    wandb = sys.modules.get("wandb")
    if wandb is None:
        return []
    runs = [*_active_runs(), getattr(wandb, "run", None)]
    live: dict[int, Run] = {id(run): run for run in runs if run is not None}
    return [run for run in live.values() if _is_ours(run) and not is_finished(run)]


def _is_ours(run: Run) -> bool:
    """Whether this process made it. A forked child finds its parent's, whose rows it would write
    into. wandb offers no public way to ask; a run that does not tell is taken for ours."""
    here = os.getpid()
    return bool(getattr(run, "_init_pid", here) == here)


def _active_runs() -> list[Run]:
    """All runs that wandb itself keeps track of; where it has none of this, none."""
    setup = sys.modules.get("wandb.sdk.wandb_setup")
    singleton = getattr(setup, "_singleton", None)
    if getattr(singleton, "_pid", None) != os.getpid():  # a forked parent's
        return []
    runs = getattr(singleton, "_active_runs", ())
    return list(runs) if isinstance(runs, (list, tuple)) else []
