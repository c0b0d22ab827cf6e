"""The one background thread that makes reports, one after the other."""

from __future__ import annotations

import enum
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import Final

from ._statistics import log

MAX_WAITING: Final = 256
"""Reports that wait their turn. A model has at most one for each run, so this many models in one
process."""


class Admission(enum.Enum):
    """What became of a job that was handed over."""

    ACCEPTED = enum.auto()
    OVERLAPPING = enum.auto()
    """One with the same key is waiting or running."""
    TURNED_AWAY = enum.auto()
    """MAX_WAITING, or the process is ending."""


class Job:
    """Something to do once. ``work`` handles its own errors; ``done`` is set at its end."""

    def __init__(self, key: Hashable, work: Callable[[], None]) -> None:
        self.key = key
        self.work = work
        self.done = threading.Event()


class Worker:
    """Runs jobs in order, on a daemon thread that starts with the first one. Any thread may
    call; no call but `flush` and `close` waits."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[Job] = deque()
        self._keys: set[Hashable] = set()
        self._accepted = 0
        self._finished = 0
        self._thread: threading.Thread | None = None
        self._closed = False
        self._gave_up_at = -1

    def submit(self, job: Job, *, overlap: bool = False) -> Admission:
        """Hand a job over; with ``overlap`` even where one with its key is there already."""
        with self._changed:
            if self._closed or len(self._waiting) >= MAX_WAITING:
                return Admission.TURNED_AWAY
            if job.key in self._keys and not overlap:
                return Admission.OVERLAPPING
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="lilo-timing", daemon=True)
                thread.start()
                self._thread = thread
            self._keys.add(job.key)
            self._waiting.append(job)
            self._accepted += 1
            self._changed.notify_all()
        return Admission.ACCEPTED

    def flush(self, timeout: float) -> bool:
        """Wait until every job accepted so far is done, for ``timeout`` seconds at most."""
        deadline = time.monotonic() + timeout
        with self._changed:
            wanted = self._accepted
            while self._finished < wanted:
                left = deadline - time.monotonic()
                if left <= 0:
                    self._gave_up_at = wanted
                    return False
                self._changed.wait(min(left, threading.TIMEOUT_MAX))
        return True

    def close(self, timeout: float) -> None:
        """The process is ending: take no more, and wait ``timeout`` seconds for what is there,
        unless somebody has waited for it in vain already."""
        with self._changed:
            self._closed = True
            patient = self._gave_up_at < self._accepted
        if patient:
            self.flush(timeout)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    self._changed.wait()
                job = self._waiting.popleft()
            try:
                job.work()
            except BaseException:  # noqa: BLE001 - this one thread is for all reports to come
                log.exception("a report failed in a way that was not foreseen")
            finally:
                with self._changed:
                    # With `overlap` a second one of the key may be waiting.
                    if all(other.key != job.key for other in self._waiting):
                        self._keys.discard(job.key)
                    self._finished += 1
                    self._changed.notify_all()
                job.done.set()
