"""The one background thread."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from lilo_timing._worker import MAX_WAITING, Admission, Job, Worker

TIMEOUT = 20.0


class Held:
    """A job that runs until it is let go."""

    def __init__(self, key: object = "held") -> None:
        self.running = threading.Event()
        self.go = threading.Event()
        self.job = Job(key, self._work)

    def _work(self) -> None:
        self.running.set()
        assert self.go.wait(TIMEOUT)


def nothing() -> None:
    """A job's work."""


def test_jobs_run_in_order_on_one_daemon_thread() -> None:
    """One after the other, on a thread that keeps no process alive."""
    worker = Worker()
    seen: list[tuple[int, threading.Thread]] = []

    def note(number: int) -> None:
        seen.append((number, threading.current_thread()))

    for number in range(5):
        assert worker.submit(Job(number, partial(note, number))) is Admission.ACCEPTED
    assert worker.flush(TIMEOUT)
    assert [number for number, _ in seen] == [0, 1, 2, 3, 4]
    (thread,) = {thread for _, thread in seen}
    assert thread.daemon
    assert thread is not threading.current_thread()


def test_a_key_that_waits_or_runs_is_overlapping_until_it_is_done() -> None:
    """The same key again is refused while one is waiting or running, and other keys are not."""
    worker = Worker()
    held = Held("a")
    assert worker.submit(held.job) is Admission.ACCEPTED
    assert held.running.wait(TIMEOUT)
    assert worker.submit(Job("a", nothing)) is Admission.OVERLAPPING
    assert worker.submit(Job("b", nothing)) is Admission.ACCEPTED
    assert worker.submit(Job("b", nothing)) is Admission.OVERLAPPING
    held.go.set()
    assert worker.flush(TIMEOUT)
    assert worker.submit(Job("a", nothing)) is Admission.ACCEPTED


def test_overlap_can_be_asked_for() -> None:
    """The key stays taken until the last one of it is done."""
    worker = Worker()
    first, second = Held("a"), Held("a")
    worker.submit(first.job)
    assert worker.submit(second.job, overlap=True) is Admission.ACCEPTED
    first.go.set()
    assert second.running.wait(TIMEOUT)
    assert worker.submit(Job("a", nothing)) is Admission.OVERLAPPING
    second.go.set()
    assert worker.flush(TIMEOUT)


def test_waiting_jobs_are_bounded() -> None:
    """At the bound a job is turned away; there is room again once one was taken up."""
    worker = Worker()
    held = Held()
    worker.submit(held.job)
    assert held.running.wait(TIMEOUT)
    for number in range(MAX_WAITING):
        assert worker.submit(Job(number, nothing)) is Admission.ACCEPTED
    assert worker.submit(Job("more", nothing)) is Admission.TURNED_AWAY
    held.go.set()
    assert worker.flush(TIMEOUT)
    assert worker.submit(Job("more", nothing)) is Admission.ACCEPTED


def test_flush_gives_up_in_time_and_says_so() -> None:
    """False while something is still in flight; True at once with nothing there."""
    worker = Worker()
    assert worker.flush(0)
    held = Held()
    worker.submit(held.job)
    assert not worker.flush(0.01)
    held.go.set()
    assert worker.flush(TIMEOUT)


def test_flush_does_not_wait_for_later_jobs() -> None:
    """What is handed over while somebody flushes is not theirs to wait for."""
    worker = Worker()
    first, second = Held("a"), Held("b")
    worker.submit(first.job)
    flushed: list[bool] = []
    flushing = threading.Thread(target=lambda: flushed.append(worker.flush(TIMEOUT)))
    flushing.start()
    assert first.running.wait(TIMEOUT)
    while not worker._finishing._waiters:  # type: ignore[attr-defined]
        flushing.join(0.001)  # it waits before the second is there
    worker.submit(second.job)
    first.go.set()
    assert second.running.wait(TIMEOUT)
    flushing.join(TIMEOUT)
    second.go.set()
    assert flushed == [True]


def test_closing_takes_no_more_and_does_not_wait_twice() -> None:
    """After a flush in vain, the end of the process does not wait for the same jobs again."""
    worker = Worker()
    held = Held()
    worker.submit(held.job)
    assert not worker.flush(0.01)
    worker.close(threading.TIMEOUT_MAX)
    assert worker.submit(Job("b", nothing)) is Admission.TURNED_AWAY
    held.go.set()


def test_the_thread_outlives_any_job(caplog: pytest.LogCaptureFixture) -> None:
    """Even one that raises what nobody catches."""
    worker = Worker()

    def exit_() -> None:
        raise SystemExit

    job = Job("a", exit_, awaited=True)
    worker.submit(job)
    assert job.done is not None
    assert job.done.wait(TIMEOUT)
    after = Job("a", nothing, awaited=True)
    assert worker.submit(after) is Admission.ACCEPTED
    assert after.done is not None
    assert after.done.wait(TIMEOUT)
    assert "not foreseen" in caplog.text
