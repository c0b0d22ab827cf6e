"""What a process has of its own to report with, and what a fork and its end make of it."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ._readers import unique_reader
from ._request import TimingRequest
from ._statistics import counters
from ._worker import Worker
from .errors import UnavailableError

if TYPE_CHECKING:
    from ._positions import Positions
    from ._report import Reporter

EXIT_TIMEOUT: Final = 2.0
"""Seconds that the end of the process waits for reports in flight. With what else there is to do
then, it stays under 3 s."""
_STOP_TIMEOUT: Final = 0.5
"""Seconds that it then waits for a report that is just being written."""
_FORK_TIMEOUT: Final = 1.0
"""Seconds that a fork waits for what the first report is importing: the child could never import
it, since the lock of a module that is half imported stays locked there."""


class Process:
    """What belongs to this process alone. What makes the reports is loaded with the first one, on
    the thread that makes it: an import is no place to wait for it."""

    def __init__(self, inherited: Positions | None = None) -> None:
        self.worker = Worker()
        self.reader = unique_reader("metrics")
        """Of `critical_path_metrics`."""
        self._inherited = inherited
        self._reporter: Reporter | None = None
        self._loading = threading.Lock()
        self._loaded: threading.Event | None = None
        """Set once everything that a report needs is imported; None before the first."""
        self._ended = False

    def reporter(self) -> Reporter:
        """The one of this process. Raises `UnavailableError` at its end."""
        from ._positions import Positions
        from ._report import Reporter

        with self._loading:
            if self._ended:
                raise UnavailableError("the process is ending, and asks for no timing any more")
            if self._reporter is None:
                self._reporter = Reporter(self._inherited or Positions())
            return self._reporter

    def report(
        self, request: TimingRequest, prefix: str, step: float | None, run: Any
    ) -> Mapping[str, float] | None:
        """Make one report. On the worker's thread."""
        self._load()
        from ._report import Order

        try:
            reporter = self.reporter()
        except UnavailableError:
            counters.count("unlogged")
            return None
        return reporter.make(Order(request, prefix, step, run))

    def before_fork(self) -> None:
        """Have nothing half imported, if that is a matter of a moment."""
        loaded = self._loaded
        if loaded is not None:
            loaded.wait(_FORK_TIMEOUT)

    def _load(self) -> None:
        if self._loaded is None:
            self._loaded = threading.Event()
            try:
                from . import _network, _report  # noqa: F401 - and httpx
            finally:
                self._loaded.set()

    def forked(self) -> Process:
        """For the child: nothing of this one but where its readers stood. Takes no lock, which
        another thread may have held when it forked."""
        reporter = self._reporter
        return Process(self._inherited if reporter is None else reporter.positions.inherited())

    def end(self) -> None:
        """Finish what is under way, within seconds; log and print nothing after that."""
        self.worker.close(EXIT_TIMEOUT)
        with self._loading:  # held for a moment only
            self._ended = True
        if self._reporter is not None:
            self._reporter.stop(_STOP_TIMEOUT)


_process = Process()


def current_process() -> Process:
    """That of the caller: a child that was forked has its own."""
    return _process


def _after_fork() -> None:
    global _process
    _process = _process.forked()
    counters.forget()


def _at_exit() -> None:
    _process.end()


os.register_at_fork(before=lambda: _process.before_fork(), after_in_child=_after_fork)
atexit.register(_at_exit)
