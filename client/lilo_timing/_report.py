"""One report from its call to its end: fetched, then into the run or on stdout."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Mapping
from typing import Final, NamedTuple

from ._metrics import flatten
from ._positions import Positions
from ._readers import RunReaders
from ._request import TimingRequest
from ._run_log import PrefixTakenError, Report, RunFinishedError, RunLogs
from ._runs import Run
from ._shown import shown
from ._statistics import counters
from .errors import TimingError

EVENT: Final = "lilo_critical_path"
_FINISHED: Final = (
    "the W&B run was finished before its timing report came, which is dropped; "
    "call flush_critical_path() before run.finish()"
)


class Order(NamedTuple):
    """A report to make. ``run`` is the caller's at the time of its call, whatever run is there
    later; None is stdout."""

    request: TimingRequest
    prefix: str
    step: float | None
    run: Run | None


class _StoppedError(Exception):
    """The process is ending."""


class Reporter:
    """Makes reports. One thread; `stop` may come from another."""

    def __init__(self, positions: Positions) -> None:
        self.positions = positions
        self._readers = RunReaders()
        self._runs = RunLogs()
        self._output = threading.Lock()
        self._stopped = False

    def make(self, order: Order) -> Mapping[str, float] | None:
        """Make the report and count its outcome; the metrics, or None without any. Never
        raises."""
        try:
            return self._make(order)
        except _StoppedError:
            counters.count("unlogged")
        except RunFinishedError:
            counters.count("unlogged")
            counters.tell("finished", _FINISHED)
        except PrefixTakenError as error:
            counters.count("ambiguous")
            counters.tell("prefix", f"timing is not logged: {error}")
        except TimingError as error:
            counters.count("failed")
            counters.tell(type(error).__name__, f"timing was not fetched: {error}", error)
        except BaseException as error:  # noqa: BLE001 - from a run or a transport of any make
            counters.count("unlogged")
            counters.tell("unexpected", f"timing was not logged: {shown(error, 200)}", error)
        return None

    def _make(self, order: Order) -> Mapping[str, float] | None:
        request, run = order.request, order.run
        # Before the fetch, which may end an interval that then has nowhere to go.
        series = None if run is None else self._runs.series(run, order.prefix, request.model_id)
        reader = request.reader or self._readers.of(run)
        # What raises in here leaves the interval unacknowledged: it comes with the next report.
        with self.positions.reading(request, reader) as answer, self._output:
            if self._stopped:
                raise _StoppedError
            if series is None:
                metrics: Mapping[str, float] = flatten(answer, order.prefix)
                self._print(request.model_id, order.step, metrics)
                counters.count("printed")
            else:
                report = Report(answer, order.step, request.reset)
                metrics = self._runs.write(run, series, report)
                counters.count("logged")
        return metrics

    def stop(self, timeout: float) -> None:
        """Log and print nothing more: a daemon thread that writes while the interpreter ends
        can bring it down. Waits ``timeout`` seconds for a writing under way."""
        if self._output.acquire(timeout=timeout):
            self._stopped = True
            self._output.release()

    def _print(self, model_id: str, step: float | None, metrics: Mapping[str, float]) -> None:
        line = {"event": EVENT, "model_id": model_id, "step": step, "metrics": metrics}
        stdout = sys.stdout
        stdout.write(json.dumps(line) + "\n")
        try:
            stdout.flush()
        except Exception as error:  # noqa: BLE001 - of a stream of any make
            # The line is in the stream's buffer, and is printed when the stream takes more: a
            # second one would count its figures twice.
            counters.tell(
                "flush", f"stdout could not be flushed, and has a report: {shown(error, 200)}"
            )
