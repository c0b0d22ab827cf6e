"""The one background thread that makes reports, one after the other."""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable, Hashable
from queue import SimpleQueue
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
    """Something to do once. ``work`` handles its own errors. If ``awaited``, ``done`` is set at its
    end; an event costs as much as all the rest of handing a job over."""

    __slots__ = ("done", "key", "work")

    def __init__(self, key: Hashable, work: Callable[[], None], *, awaited: bool = False) -> None:
        self.key = key
        self.work = work
        self.done = threading.Event() if awaited else None


class Worker:
    """Runs jobs in order, on a daemon thread that starts with the first one. Any thread may
    call; no call but `flush` and `close` waits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._finishing = threading.Condition(self._lock)
        # Waking a thread through a condition takes its caller three times as long.
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._keys: dict[Hashable, int] = {}
        """How many jobs of each key wait or run."""
        self._accepted = 0
        self._taken_up = 0
        """Written by the worker's thread alone, without the lock."""
        self._finished = 0
        self._thread: threading.Thread | None = None
        self._closed = False
        self._gave_up_at = -1

    def submit(self, job: Job, *, overlap: bool = False) -> Admission:
        """Hand a job over; with ``overlap`` even where one with its key is there already."""
        with self._lock:
            if self._closed or self._accepted - self._taken_up >= MAX_WAITING:
                return Admission.TURNED_AWAY
            others = self._keys.get(job.key, 0)
            if others and not overlap:
                return Admission.OVERLAPPING
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="lilo-timing", daemon=True)
                thread.start()
                self._thread = thread
            self._keys[job.key] = others + 1
            self._accepted += 1
            self._jobs.put(job)
        return Admission.ACCEPTED

    def flush(self, timeout: float) -> bool:
        """Wait until every job accepted so far is done, for ``timeout`` seconds at most."""
        deadline = time.monotonic() + timeout
        with self._finishing:
            wanted = self._accepted
            while self._finished < wanted:
                left = deadline - time.monotonic()
                if left <= 0:
                    self._gave_up_at = wanted
                    return False
                self._finishing.wait(min(left, threading.TIMEOUT_MAX))
        return True

    def close(self, timeout: float) -> None:
        """The process is ending: take no more, and wait ``timeout`` seconds for what is there,
        unless somebody has waited for it in vain already."""
        with self._lock:
            self._closed = True
            patient = self._gave_up_at < self._accepted
        if patient:
            self.flush(timeout)

    def _run(self) -> None:
        while True:
            job = self._jobs.get()
            self._taken_up += 1
            try:
                job.work()
            except BaseException:  # noqa: BLE001 - this one thread is for all reports to come
                log.exception("a report failed in a way that was not foreseen")
            finally:
                with self._finishing:
                    left = self._keys[job.key] - 1
                    if left:
                        self._keys[job.key] = left
                    else:
                        del self._keys[job.key]
                    self._finished += 1
                    self._finishing.notify_all()
                if job.done is not None:
                    job.done.set()
