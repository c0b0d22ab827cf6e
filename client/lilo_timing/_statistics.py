"""What became of reports: counted always, said once."""

from __future__ import annotations

import logging
import threading
from typing import NamedTuple

log = logging.getLogger("lilo_timing")


class ReportingStatistics(NamedTuple):
    """Reports of this process so far, by their end. A call of `log_critical_path` adds one to
    exactly one of these when it is over; ``positions_evicted`` alone is none of them."""

    logged: int = 0
    """In a W&B run."""
    printed: int = 0
    """On stdout, there being no run; or in its buffer, where it could not be flushed."""
    overlapping: int = 0
    """Not made, since one of the same model to the same run was in flight. Nothing is lost: the
    interval stays open, and the next report covers it."""
    turned_away: int = 0
    """Not made, since too many models' reports were waiting, or the process was ending."""
    invalid: int = 0
    """Not made, since an argument cannot work."""
    ambiguous: int = 0
    """Not made, since it was unclear where to: several live runs and no ``run=``, or another
    model's reports in the same run under the same prefix."""
    failed: int = 0
    """Not fetched: no answer, or not the one expected. The interval was not acknowledged, so the
    next report of the model to the same run covers it, if there is one."""
    unlogged: int = 0
    """Fetched, and then refused by the run (or by stdout), or the process was ending. The interval
    was not acknowledged, so the next report of the model to the same run covers it, if there is
    one: a run that is finished gets no more."""
    positions_evicted: int = 0
    """No end of a report: readers' positions forgotten, since over 8,192 were in use. If one of
    them reads again, its last interval comes a second time."""


class Counters:
    """The growing side of `ReportingStatistics`. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = ReportingStatistics()
        self._said: set[str] = set()

    def count(self, outcome: str) -> None:
        """``outcome`` is a field of `ReportingStatistics`."""
        with self._lock:
            counts = self._counts
            self._counts = counts._replace(**{outcome: getattr(counts, outcome) + 1})

    def snapshot(self) -> ReportingStatistics:
        """All counts at one moment."""
        return self._counts

    def tell(self, kind: str, message: str, error: BaseException | None = None) -> None:
        """Warn, the first time for this ``kind`` (one of a fixed few); later only at debug."""
        with self._lock:
            first = kind not in self._said
            self._said.add(kind)
        if first:
            log.warning("%s (further ones like this are logged at debug level)", message)
        else:
            log.debug("%s", message)
        if error is not None:
            log.debug("that was", exc_info=error)

    def forget(self) -> None:
        """After a fork, in the child: its own counts."""
        self._lock = threading.Lock()
        self._counts = ReportingStatistics()


counters = Counters()
