"""Reports into W&B runs: what goes into which row of a run's history.

A report is logged with ``commit=False`` and without a step, so it joins the row that the training
loop is about to commit and moves neither the loop's counter nor its rows. Two things follow.

Until the loop commits, a later report overwrites an earlier one of the same names in that row. So
the later one carries the earlier one's figures. ``run.step`` says which row is pending: W&B's
core answers it, in order with what was logged before.

The loop may commit between our question and our writing. That shows in a second question after
the writing, and then the number of the report, which is logged with it, tells whether it was
committed: the run's summary has the committed rows only.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ._answer import TimingAnswer
from ._merge import merge_answers
from ._metrics import flatten
from ._runs import Run, is_finished
from ._shown import shown
from ._statistics import counters, log

MAX_PREFIXES: Final = 64
"""Prefixes in one run; each has a model of its own."""
SUCCESSION: Final = 3
"""Reports of another model, with none of its own between them, after which a prefix passes to it:
a loop that goes on with a new model, since its trainer was restarted, say. Two models that both
go on reporting never get that far."""


class RunFinishedError(Exception):
    """The run was finished before the report came."""


class PrefixTakenError(Exception):
    """Another model's reports have that prefix in that run, or it is one prefix too many."""


@dataclass(frozen=True, slots=True)
class Report:
    """One interval of a model, on its way to a run."""

    answer: TimingAnswer
    step: float | None
    """The training loop's own."""
    reset: bool
    """Whether the interval ended with it. If not, the next answer covers it anyway."""


@dataclass(frozen=True, slots=True)
class _Pending:
    """What our keys of a row that is not committed yet hold."""

    row: int
    closed: TimingAnswer | None
    """The intervals in it that have ended, as one."""
    merged: int
    """How many reports are in ``closed``."""


class _Series:
    """The reports under one prefix of one run: one model's."""

    def __init__(self, prefix: str, model_id: str) -> None:
        self.model_id = model_id
        self._prefix = prefix
        self._defined = False
        self._number = 0
        self._pending: _Pending | None = None
        self._claims = 0

    def claimed_by(self, run: Run, model_id: str) -> _Series | None:
        """Another model wants to report here: its series, if this one's model has gone silent
        and its figures are committed."""
        self._claims += 1
        if self._claims < SUCCESSION:
            return None
        if self._pending is not None and self._pending.row == _row(run):
            return None
        successor = _Series(self._prefix, model_id)
        successor._defined, successor._number = self._defined, self._number
        return successor

    def write(self, run: Run, report: Report) -> Mapping[str, float]:
        """Log the report; returns what was logged. Raises what the run raises."""
        self._claims = 0
        self._define(run)
        row = _row(run)
        earlier = self._pending if self._pending is not None and self._pending.row == row else None
        metrics, closed, merged = self._log(run, report, earlier, row)
        after = _row(run)
        if after != row and after is not None and not self._committed(run):
            # Our report missed the row that was committed, and is in the one after it.
            if earlier is not None:  # What it carried is in both: take it out of this one.
                blank = dict.fromkeys(metrics, 0.0)
                metrics, closed, merged = self._log(run, report, None, after, blank)
            row = after
        self._pending = None if row is None or after != row else _Pending(row, closed, merged)
        return metrics

    def _log(
        self,
        run: Run,
        report: Report,
        earlier: _Pending | None,
        row: int | None,
        blank: Mapping[str, float] | None = None,
    ) -> tuple[Mapping[str, float], TimingAnswer | None, int]:
        closed = None if earlier is None else earlier.closed
        merged = 0 if earlier is None else earlier.merged
        shown = report.answer if closed is None else merge_answers(closed, report.answer)
        self._number += 1
        metrics = {
            **(blank or {}),
            **flatten(shown, self._prefix),
            **self._of_reporting(merged + 1),
        }
        step = row if report.step is None else report.step
        if step is not None:
            metrics[f"{self._prefix}/step"] = step
        run.log(dict(metrics), commit=False)
        return metrics, *((shown, merged + 1) if report.reset else (closed, merged))

    def _of_reporting(self, merged: int) -> dict[str, float]:
        counts = counters.snapshot()
        return {
            f"{self._prefix}/reports.{name}": value
            for name, value in (
                ("number", self._number),
                ("merged", merged),
                ("overlapping", counts.overlapping),
                ("failed", counts.failed),
                ("unlogged", counts.unlogged),
            )
        }

    def _define(self, run: Run) -> None:
        """Once: the timing's own x-axis. Without it the reports are stored all the same."""
        if self._defined:
            return
        self._defined = True
        try:
            run.define_metric(f"{self._prefix}/*", step_metric=f"{self._prefix}/step")
        except Exception as error:  # noqa: BLE001 - of a run of any make
            counters.tell(
                "define_metric", f"W&B did not take the step metric: {shown(error, 200)}", error
            )

    def _committed(self, run: Run) -> bool:
        """Whether the report logged last is in a row that was committed; True where the run does
        not tell, since figures that are carried on for nothing would count twice."""
        if is_finished(run):
            return True
        try:
            return bool(run.summary.get(f"{self._prefix}/reports.number") == self._number)
        except Exception:  # noqa: BLE001 - of a run of any make
            log.debug("the run's summary is not to be had", exc_info=True)
            return True


class RunLogs:
    """The state of all runs, for as long as they exist. The worker's thread only."""

    def __init__(self) -> None:
        self._runs: weakref.WeakKeyDictionary[Run, dict[str, _Series]] = weakref.WeakKeyDictionary()

    def check(self, run: Run, prefix: str, model_id: str) -> None:
        """Whether a report would be taken, as far as that is known before there is one. Raises
        `PrefixTakenError` and `RunFinishedError`."""
        series = self._runs.get(run, {}).get(prefix)
        if series is not None and series.model_id != model_id and not is_finished(run):
            successor = series.claimed_by(run, model_id)
            if successor is not None:
                self._runs[run][prefix] = successor
        self._series(run, prefix, model_id)

    def write(self, run: Run, prefix: str, model_id: str, report: Report) -> Mapping[str, float]:
        """Log the report; returns what was logged. Raises as `check` does, and what the run
        raises."""
        series = self._series(run, prefix, model_id)
        try:
            metrics = series.write(run, report)
        except Exception as error:  # of a run of any make
            if is_finished(run):
                raise RunFinishedError from error
            raise
        self._runs.setdefault(run, {})[prefix] = series
        return metrics

    def _series(self, run: Run, prefix: str, model_id: str) -> _Series:
        if is_finished(run):
            raise RunFinishedError
        prefixes = self._runs.get(run, {})
        series = prefixes.get(prefix)
        if series is None:
            if len(prefixes) >= MAX_PREFIXES:
                raise PrefixTakenError(
                    f"the W&B run has timing under {MAX_PREFIXES} prefixes, and takes no more"
                )
            return _Series(prefix, model_id)
        if series.model_id != model_id:
            raise PrefixTakenError(
                f"the W&B run has the timing of model {shown(series.model_id)} under {prefix!r}, "
                f"where that of {shown(model_id)} would overwrite it; "
                "pass prefix= with a name for each model"
            )
        return series


def _row(run: Run) -> int | None:
    """The row that the next uncommitted figures join; None where the run does not tell, as one
    that several processes write to does not."""
    if is_finished(run):
        return None
    try:
        row = run.step
    except Exception:  # noqa: BLE001 - of a run of any make
        log.debug("the run does not tell its step", exc_info=True)
        return None
    return row if isinstance(row, int) else None
