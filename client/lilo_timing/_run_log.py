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

import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
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
SILENCE: Final = 60.0
"""Reports of another model, with none of its own between them, and seconds since its own last one,
after which a prefix passes to it: a loop goes on with a new model, since its trainer was restarted,
say. If the old one reports again after all, there are two that go on reporting: it gets its prefix
back, and that other one never gets it again."""
MAX_RIVALS: Final = 64
"""Such others of one prefix; beyond, it passes to nobody any more."""


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
    blank: Mapping[str, float] = field(default_factory=dict)
    """Figures in it that are in a committed row, too: to be 0 unless the next report has them."""


class Series:
    """The reports under one prefix of one run: one model's."""

    def __init__(self, prefix: str, model_id: str) -> None:
        self.model_id = model_id
        self.prefix = prefix
        self._defined = False
        self._number = 0
        self._pending: _Pending | None = None
        self._reported = 0.0
        self._claims = 0
        self._predecessor: str | None = None
        """The model that had the prefix before."""
        self._rivals: frozenset[str] = frozenset()
        """Models that report beside this one."""

    def claimed_by(self, run: Run, model_id: str, now: float) -> Series | None:
        """Another model wants to report here: its series, if the prefix passes to it. Never
        while this one's figures wait for their commit: they would be overwritten."""
        self._claims += 1
        returning = model_id == self._predecessor
        silent = self._claims >= SUCCESSION and now - self._reported >= SILENCE
        barred = model_id in self._rivals or len(self._rivals) >= MAX_RIVALS
        if not returning and (barred or not silent):
            return None
        if self._pending is not None and self._pending.row == _row(run):
            return None
        successor = Series(self.prefix, model_id)
        successor._defined, successor._number = self._defined, self._number
        if returning:
            successor._rivals = self._rivals | {self.model_id}
        else:
            successor._rivals, successor._predecessor = self._rivals, self.model_id
        return successor

    def write(self, run: Run, report: Report, now: float) -> Mapping[str, float]:
        """Log the report; returns what was logged. Raises what the run raises."""
        self._claims, self._reported = 0, now
        self._define(run)
        row = _row(run)
        earlier = self._pending if self._pending is not None and self._pending.row == row else None
        metrics, pending = self._log(run, report, earlier, row)
        after = _row(run)
        if after != row and after is not None and not self._committed(run):
            # Our report missed the row that was committed, and is in the one after it.
            if earlier is None:
                pending = replace(pending, row=after)
            else:  # What it carried is in both: take it out of this one.
                blank = dict.fromkeys(metrics, 0.0)
                metrics, pending = self._corrected(run, report, _Pending(after, None, 0, blank))
            row = after
        self._pending = None if row is None or after != row else pending
        return metrics

    def _corrected(
        self, run: Run, report: Report, row: _Pending
    ) -> tuple[Mapping[str, float], _Pending]:
        """The report alone in its row, which has figures of an earlier one, too."""
        try:
            return self._log(run, report, row, row.row)
        except Exception as error:  # noqa: BLE001 - of a run of any make
            # The run has the report, so it must not come again. The next one, which carries it,
            # takes the rest out.
            counters.tell(
                "correction",
                "the W&B run did not take a correction, and shows an interval twice unless a "
                f"report comes before its next commit: {shown(error, 200)}",
                error,
            )
            closed = report.answer if report.reset else None
            alone = flatten(report.answer, self.prefix)
            return alone, replace(row, closed=closed, merged=int(report.reset))

    def _log(
        self, run: Run, report: Report, earlier: _Pending | None, row: int | None
    ) -> tuple[Mapping[str, float], _Pending]:
        """Add a report to what the row has; what the row has then."""
        if earlier is None:
            earlier = _Pending(-1 if row is None else row, None, 0)
        closed, merged = earlier.closed, earlier.merged
        shown = report.answer if closed is None else merge_answers(closed, report.answer)
        self._number += 1
        metrics = {
            **earlier.blank,
            **flatten(shown, self.prefix),
            **self._of_reporting(merged + 1),
        }
        step = row if report.step is None else report.step
        if step is not None:
            metrics[f"{self.prefix}/step"] = step
        run.log(dict(metrics), commit=False)
        if report.reset:
            closed, merged = shown, merged + 1
        return metrics, _Pending(earlier.row, closed, merged)

    def _of_reporting(self, merged: int) -> dict[str, float]:
        counts = counters.snapshot()
        return {
            f"{self.prefix}/reports.{name}": value
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
            run.define_metric(f"{self.prefix}/*", step_metric=f"{self.prefix}/step")
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
            return bool(run.summary.get(f"{self.prefix}/reports.number") == self._number)
        except Exception:  # noqa: BLE001 - of a run of any make
            log.debug("the run's summary is not to be had", exc_info=True)
            return True


class RunLogs:
    """The state of all runs, for as long as they exist. The worker's thread only. ``clock`` gives
    seconds that nobody sets."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._runs: weakref.WeakKeyDictionary[Run, dict[str, Series]] = weakref.WeakKeyDictionary()

    def series(self, run: Run, prefix: str, model_id: str) -> Series:
        """Where a report would go, if there is one: nothing is changed yet. Raises
        `PrefixTakenError` and `RunFinishedError`."""
        if is_finished(run):
            raise RunFinishedError
        prefixes = self._runs.get(run, {})
        series = prefixes.get(prefix)
        if series is None:
            if len(prefixes) >= MAX_PREFIXES:
                raise PrefixTakenError(
                    f"the W&B run has timing under {MAX_PREFIXES} prefixes, and takes no more"
                )
            return Series(prefix, model_id)
        if series.model_id == model_id:
            return series
        successor = series.claimed_by(run, model_id, self.clock())
        if successor is None:
            raise PrefixTakenError(
                f"the W&B run has the timing of model {shown(series.model_id)} under {prefix!r}, "
                f"where that of {shown(model_id)} would overwrite it; "
                "pass prefix= with a name for each model"
            )
        return successor

    def write(self, run: Run, series: Series, report: Report) -> Mapping[str, float]:
        """Log the report where `series` said; returns what was logged. Raises `RunFinishedError`,
        and what the run raises."""
        if is_finished(run):
            raise RunFinishedError
        try:
            metrics = series.write(run, report, self.clock())
        except Exception as error:  # of a run of any make
            if is_finished(run):
                raise RunFinishedError from error
            raise
        self._runs.setdefault(run, {})[series.prefix] = series
        return metrics


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
