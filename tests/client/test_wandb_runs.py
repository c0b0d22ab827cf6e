"""Which real W&B run a report is in, offline, and what becomes of it where there is none for it."""

from __future__ import annotations

import gc
import os
import weakref
from typing import Any

import pytest

from lilo_timing import flush_critical_path, log_critical_path, reporting_statistics
from support.timing_server import TIMEOUT, TimingServer
from support.wandb_runs import EXECUTE, Interrupted, Runs, report


def test_a_run_finished_meanwhile_gets_nothing_nor_does_a_newer_one(
    runs: Runs, server: TimingServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The run is the caller's at the time of the call. The drop is counted and said."""
    old = runs.start()
    old.log({"loss": 1.0})
    server.hold()
    log_critical_path("m", base_url=server.url)
    server.wait_for(1)
    old.finish()
    new = runs.start()
    server.release()
    assert flush_critical_path(TIMEOUT)
    new.log({"loss": 2.0})
    for run in (old, new):
        assert all(EXECUTE not in name for row in runs.rows(run) for name in row)
    assert reporting_statistics().unlogged == 1
    assert "call flush_critical_path() before run.finish()" in caplog.text


def test_a_run_finished_while_a_report_is_written_is_no_surprise(
    runs: Runs, server: TimingServer, caplog: pytest.LogCaptureFixture
) -> None:
    """It ends as one that was finished a moment earlier."""

    class Finishing(Interrupted):
        def log(self, metrics: dict[str, Any], commit: bool) -> None:
            self._run.finish()
            super().log(metrics, commit)

    report(server, run=Finishing(runs.start()))
    assert reporting_statistics().unlogged == 1
    assert "call flush_critical_path() before run.finish()" in caplog.text


def test_nothing_is_fetched_for_a_run_that_is_over(runs: Runs, server: TimingServer) -> None:
    """The interval stays open where its figures could go nowhere."""
    run = runs.start()
    run.finish()
    report(server, run=run)
    assert server.requests == []
    assert reporting_statistics().unlogged == 1


def test_after_a_flush_the_last_report_is_in_the_run(runs: Runs, server: TimingServer) -> None:
    """The row that is pending when the run is finished is stored."""
    run = runs.start()
    log_critical_path("m", step=7, base_url=server.url)
    assert flush_critical_path(TIMEOUT)
    assert [row["lilo/step"] for row in runs.rows(run)] == [7]


def test_of_several_live_runs_none_is_guessed(
    runs: Runs, server: TimingServer, caplog: pytest.LogCaptureFixture
) -> None:
    """W&B's global run is the oldest or none then. `run=` says which; without it there is one
    warning, and no model's figures get into another's run."""
    first = runs.start(reinit="create_new")
    second = runs.start(reinit="create_new")
    report(server, "a")
    report(server, "b")
    assert server.requests == []
    report(server, "a", step=1, run=first)
    report(server, "b", step=2, run=second)
    assert [row["lilo/step"] for row in runs.rows(first)] == [1]
    report(server, "b", step=3)  # one is left
    assert [row["lilo/step"] for row in runs.rows(second)] == [3]
    assert caplog.text.count("pass the one to log to as run=") == 1
    assert (reporting_statistics().ambiguous, reporting_statistics().logged) == (2, 3)


def test_the_global_run_beside_another_is_not_guessed(runs: Runs, server: TimingServer) -> None:
    """Also where there is a global one: it is the older."""
    runs.start()
    runs.start(reinit="create_new")
    report(server)
    assert reporting_statistics().ambiguous == 1


def test_a_forked_child_leaves_its_parents_run_alone(
    runs: Runs, server: TimingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It finds the run of its parent, in whose rows its report would overwrite the parent's; it
    has none of its own, so it prints."""
    run = runs.start()
    monkeypatch.setattr(runs.wandb, "run", run)  # as it is unless there were others before
    report(server, step=1)
    if not (child := os.fork()):
        status = 1
        try:
            report(server, step=2)
            status = reporting_statistics().printed != 1
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert [row["lilo/step"] for row in runs.rows(run)] == [1]


def test_a_step_metric_that_is_refused_costs_no_point(
    runs: Runs, server: TimingServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The figures are stored on W&B's own axis then, with one warning."""

    class NoMetrics(Interrupted):
        def define_metric(self, *args: object, **kwargs: object) -> None:
            raise ValueError("no metrics")

    run = runs.start()
    report(server, step=1, run=NoMetrics(run))
    assert [row["lilo/step"] for row in runs.rows(run)] == [1]
    assert "no metrics" in caplog.text


def test_a_run_that_raises_is_swallowed(runs: Runs, server: TimingServer) -> None:
    """Whatever a run raises, it is counted, and the next report is made."""

    class Full(Interrupted):
        def log(self, metrics: dict[str, Any], commit: bool) -> None:
            if self.interrupt:
                raise OSError("disk full")
            super().log(metrics, commit)

    run = runs.start()
    broken = Full(run)
    broken.interrupt = True
    report(server, run=broken)
    broken.interrupt = False
    report(server, step=2, run=broken)
    assert [row["lilo/step"] for row in runs.rows(run)] == [2]
    assert (reporting_statistics().unlogged, reporting_statistics().logged) == (1, 1)


def test_a_disabled_run_prints_nothing(
    runs: Runs, server: TimingServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever disabled W&B wants no lines on stdout instead."""
    run = runs.wandb.init(mode="disabled")
    report(server)
    run.finish()
    assert capsys.readouterr().out == ""
    assert reporting_statistics().logged == 1


def test_state_of_a_run_goes_with_it(server: TimingServer) -> None:
    """A process that makes many runs keeps nothing of those that are gone."""

    class Other:
        def log(self, metrics: dict[str, Any], commit: bool) -> None:
            pass

    run = Other()
    report(server, run=run)
    gone = weakref.ref(run)
    del run
    report(server, "another", run=Other())  # the worker's last job holds its own run
    gc.collect()
    assert gone() is None
