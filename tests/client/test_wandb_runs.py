"""Which real W&B run a report is in, offline, and what becomes of it where there is none for it."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from lilo_timing import flush_critical_path, log_critical_path, reporting_statistics
from lilo_timing._run_log import MAX_PREFIXES
from support.timing_server import TIMEOUT, TimingServer, error
from support.wandb_runs import EXECUTE, Interrupted, Runs, figures, report


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


def test_two_models_under_one_prefix_do_not_overwrite_each_other(
    runs: Runs, server: TimingServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The second one's reports are not made, its interval stays open, and a warning tells what
    to pass; with a prefix of its own it is logged beside the first."""
    run = runs.start()
    report(server, "a", step=1)
    report(server, "b", step=2)
    report(server, "b", step=3)
    assert [request.query["model_id"] for request in server.requests] == ["a"]
    assert caplog.text.count("pass prefix= with a name for each model") == 1
    report(server, "b", step=4, prefix="other")
    report(server, "a", step=5)
    (row,) = runs.rows(run)
    assert (row["lilo/step"], row["other/step"]) == (5, 4)
    assert (figures(row)[0], figures(row, "other/forward_backward.execute")[0]) == (2, 1)
    assert reporting_statistics().ambiguous == 2


def test_a_loop_may_go_on_with_a_new_model(runs: Runs, server: TimingServer) -> None:
    """A trainer was restarted and the loop has a new model in the same run: once the old one has
    been silent for three reports, and its figures are committed, the new one's are logged. Two
    that both go on reporting never take turns."""
    run = runs.start()
    report(server, "old", step=1)
    for step in (2, 3, 4):
        report(server, "new", step=step)
    assert reporting_statistics().ambiguous == 3, "the old one's figures wait for their commit"
    run.log({"loss": 1.0})
    report(server, "new", step=5)
    run.log({"loss": 2.0})
    for step in range(6, 12, 2):
        report(server, "old", step=step)
        report(server, "new", step=step + 1)
    assert reporting_statistics().ambiguous == 6
    rows = [row for row in runs.rows(run) if "lilo/step" in row]
    assert [row["lilo/step"] for row in rows] == [1, 5, 11]


def test_a_model_that_was_never_reported_takes_no_prefix(runs: Runs, server: TimingServer) -> None:
    """A wrong id that the server does not know does not keep the right one out."""
    run = runs.start()
    good = server.answering
    server.answering = lambda _: error(404)
    report(server, "typo")
    server.answering = good
    report(server, "right", step=2)
    assert [row["lilo/step"] for row in runs.rows(run)] == [2]


def test_prefixes_of_a_run_are_bounded(runs: Runs, server: TimingServer) -> None:
    """A prefix too many is refused and counted."""
    runs.start()
    for number in range(MAX_PREFIXES + 1):
        report(server, f"m{number}", prefix=f"p{number}")
    assert (reporting_statistics().logged, reporting_statistics().ambiguous) == (MAX_PREFIXES, 1)


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
