"""Reports into the real W&B, offline: what its own file holds in the end."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lilo_timing import flush_critical_path, log_critical_path, reporting_statistics
from lilo_timing._run_log import MAX_PREFIXES
from support.timing_server import (
    TIMEOUT,
    Answer,
    Request,
    TimingServer,
    error,
    ok,
    phase,
    timing,
)
from support.wandb_history import history, metric_definitions

EXECUTE = "lilo/forward_backward.execute"


class Runs:
    """Makes runs, and reads what they stored."""

    def __init__(self, directory: Path) -> None:
        import wandb

        self.wandb = wandb
        self._directory = directory
        self._settings = wandb.Settings(
            mode="offline",
            console="off",
            silent=True,
            x_disable_meta=True,
            x_disable_stats=True,
            x_disable_machine_info=True,
        )

    def start(self, **arguments: Any) -> Any:
        return self.wandb.init(
            project="p", dir=str(self._directory), settings=self._settings, **arguments
        )

    def rows(self, run: Any) -> list[dict[str, Any]]:
        """Finish the run; its rows by name, without W&B's own keys but `_step`."""
        run.finish()
        return [
            {name: value for name, value in row.items() if name not in ("_runtime", "_timestamp")}
            for row in history(run.settings.sync_file)
        ]


@pytest.fixture(scope="module")
def wandb_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """One wandb for all tests here: it takes seconds to come and go."""
    directory = tmp_path_factory.mktemp("wandb")
    runs = Runs(directory)
    yield runs
    runs.wandb.teardown()


@pytest.fixture
def runs(wandb_runs: Runs) -> Iterator[Runs]:
    yield wandb_runs
    singleton = wandb_runs.wandb.sdk.wandb_setup.singleton()
    singleton.finish_all_active_runs()


def intervals(*executions: tuple[int, float, float]) -> Callable[[Request], Answer]:
    """One execute phase for each answer, as (count, total_s, max_s); the last one again and
    again."""
    phases = itertools.chain(executions, itertools.repeat(executions[-1]))
    return lambda _: ok(timing({"forward_backward.execute": phase(*next(phases))}))


def report(server: TimingServer, model_id: str = "m", **arguments: Any) -> None:
    """Report, and wait until that is over."""
    log_critical_path(model_id, base_url=server.url, **arguments)
    assert flush_critical_path(TIMEOUT)


def figures(row: dict[str, Any], key: str = EXECUTE) -> tuple[float, float, float, float]:
    """count, total, mean and max in a row."""
    count, total, mean, maximum = (
        row[f"{key}.{stat}"] for stat in ("count", "total_s", "mean_s", "max_s")
    )
    return count, total, mean, maximum


def test_a_report_joins_the_row_of_the_loop(runs: Runs, server: TimingServer) -> None:
    """It is in the row that the loop commits next, with the loop's own step, the counts of
    reports, and the step metric defined once."""
    run = runs.start()
    for step in (1, 2):
        report(server, step=step)
        run.log({"loss": 0.5})
    rows = runs.rows(run)
    assert [(row["_step"], row["lilo/step"], row["loss"]) for row in rows] == [
        (0, 1, 0.5),
        (1, 2, 0.5),
    ]
    assert figures(rows[0]) == (1, 2, 2, 2)
    assert rows[0]["lilo/trainer.backend_ready_s"] == 1.5
    assert [row["lilo/reports.number"] for row in rows] == [1, 2]
    assert [row["lilo/reports.merged"] for row in rows] == [1, 1]
    definitions = metric_definitions(run.settings.sync_file)
    assert definitions.count(("lilo/*", "lilo/step")) == 1
    assert reporting_statistics().logged == 2


def test_a_smaller_step_of_the_timing_costs_no_point(runs: Runs, server: TimingServer) -> None:
    """The loop logs its loss at step 8000, the timing is of step 3: W&B would ignore a step that
    falls, so none is passed, and both are stored."""
    run = runs.start()
    for loss_step, timing_step in ((8000, 3), (8001, 4)):
        run.log({"loss": 1.0}, step=loss_step)
        report(server, step=timing_step)
    rows = runs.rows(run)
    assert [(row["_step"], row["loss"], row["lilo/step"]) for row in rows] == [
        (8000, 1, 3),
        (8001, 1, 4),
    ]


def test_a_report_moves_no_counter_of_the_loop(runs: Runs, server: TimingServer) -> None:
    """A loss at step 10, a report, another loss at step 10: all three are in row 10."""
    run = runs.start()
    run.log({"loss": 1.0}, step=10)
    report(server, step=10)
    run.log({"accuracy": 2.0}, step=10)
    run.log({"loss": 3.0}, step=11)
    rows = runs.rows(run)
    assert [row["_step"] for row in rows] == [10, 11]
    assert (rows[0]["loss"], rows[0]["accuracy"], rows[0]["lilo/step"]) == (1, 2, 10)
    assert rows[1]["loss"] == 3
    assert "lilo/step" not in rows[1] or rows[1]["lilo/step"] == 10
    assert f"{EXECUTE}.count" not in rows[1]


def test_without_a_step_the_rows_number_is_the_x_axis(runs: Runs, server: TimingServer) -> None:
    """Charts of the timing have their x-axis in any case."""
    run = runs.start()
    run.log({"loss": 1.0}, step=10)
    report(server)
    assert [(row["_step"], row["lilo/step"]) for row in runs.rows(run)] == [(10, 10)]


def test_reports_between_two_commits_lose_nothing(runs: Runs, server: TimingServer) -> None:
    """A loop that commits every few steps: the later report carries the earlier ones' figures,
    and what was committed is not carried on."""
    server.answering = intervals((1, 2.0, 2.0), (2, 10.0, 8.0), (3, 3.0, 1.0), (1, 5.0, 5.0))
    run = runs.start()
    for step in (1, 2, 3):
        report(server, step=step)
    run.log({"loss": 1.0})
    report(server, step=4)
    run.log({"loss": 2.0})
    rows = runs.rows(run)
    assert [figures(row) for row in rows] == [(6, 15, 2.5, 8), (1, 5, 5, 5)]
    assert [row["lilo/step"] for row in rows] == [3, 4]
    assert [row["lilo/reports.merged"] for row in rows] == [3, 1]


def test_the_same_holds_for_a_loop_that_passes_steps(runs: Runs, server: TimingServer) -> None:
    """With explicit steps a row is committed by the next larger step; several logs of one step
    stay in one row."""
    server.answering = intervals((1, 1.0, 1.0))
    run = runs.start()
    for step in (10, 20, 30):
        run.log({"loss": 1.0}, step=step)
        report(server, step=step)
        run.log({"accuracy": 1.0}, step=step)
        report(server, step=step + 1)
    assert [(row["_step"], *figures(row)[:2], row["lilo/step"]) for row in runs.rows(run)] == [
        (10, 2, 2, 11),
        (20, 2, 2, 21),
        (30, 2, 2, 31),
    ]


def test_a_commit_with_an_explicit_step_ends_the_row(runs: Runs, server: TimingServer) -> None:
    """`commit=True` beside a step is a commit; `commit=False` of the loop is none."""
    server.answering = intervals((1, 1.0, 1.0))
    run = runs.start()
    report(server)
    run.log({"a": 1}, commit=False)
    report(server)
    run.log({"b": 1}, step=5, commit=True)
    report(server)
    run.log({"c": 1})
    rows = runs.rows(run)
    assert [(row["_step"], figures(row)[0]) for row in rows if f"{EXECUTE}.count" in row] == [
        (0, 2),
        (6, 1),
    ]


def test_open_intervals_are_not_added_up(runs: Runs, server: TimingServer) -> None:
    """With `reset=False` each answer covers the one before; only ended intervals add."""
    server.answering = intervals((1, 1.0, 1.0), (2, 2.0, 1.0), (3, 3.0, 1.0), (1, 1.0, 1.0))
    run = runs.start()
    report(server, reset=False)
    report(server, reset=False)
    report(server, reset=True)
    report(server, reset=False)
    run.log({"loss": 1.0})
    (row,) = runs.rows(run)
    assert figures(row)[0] == 4


class Interrupted:
    """A run whose loop commits at the worst moment: after the row was asked for, before the
    report is in it."""

    def __init__(self, run: Any) -> None:
        self._run = run
        self.interrupt = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)

    def log(self, metrics: dict[str, Any], commit: bool) -> None:
        if self.interrupt:
            self.interrupt = False
            self._run.log({"loss": 1.0})
        self._run.log(metrics, commit=commit)


@pytest.mark.parametrize("when", [0, 1, 2])
def test_a_commit_while_a_report_is_written_counts_nothing_twice(
    runs: Runs, server: TimingServer, when: int
) -> None:
    """Whichever of three reports the loop's commit hits, each interval is in one row, and what
    the next one carries is right, too."""
    server.answering = intervals((1, 1.0, 1.0), (10, 10.0, 1.0), (100, 100.0, 1.0))
    run = runs.start()
    interrupted = Interrupted(run)
    for number in range(3):
        interrupted.interrupt = number == when
        report(server, run=interrupted)
    run.log({"loss": 2.0})
    counts = [row.get(f"{EXECUTE}.count", 0) for row in runs.rows(run)]
    assert counts == {0: [0, 111], 1: [1, 110], 2: [11, 100]}[when]


def test_a_phase_that_only_the_carried_report_had_counts_once(
    runs: Runs, server: TimingServer
) -> None:
    """Where figures have to be taken out of a row again, those of a phase that the later report
    does not have become 0."""
    answers = iter([{"a.persist": phase(1, 1.0, 1.0)}, {"b.persist": phase(1, 1.0, 1.0)}])
    server.answering = lambda _: ok(timing(next(answers)))
    run = runs.start()
    interrupted = Interrupted(run)
    report(server, run=interrupted)
    interrupted.interrupt = True
    report(server, run=interrupted)
    run.log({"loss": 2.0})
    rows = runs.rows(run)
    assert [row.get("lilo/a.persist.count") for row in rows] == [1, 0]
    assert [row.get("lilo/b.persist.count") for row in rows] == [None, 1]


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


def test_a_run_that_does_not_tell_its_row_is_logged_to_without_carrying(
    server: TimingServer,
) -> None:
    """Another make of run, or one that several processes share: each report stands alone, since
    figures that are carried on for nothing would count twice."""

    class Other:
        def __init__(self) -> None:
            self.logged: list[dict[str, Any]] = []

        def log(self, metrics: dict[str, Any], commit: bool) -> None:
            assert not commit
            self.logged.append(metrics)

    run = Other()
    report(server, run=run)
    report(server, step=2, run=run)
    assert [metrics[f"{EXECUTE}.count"] for metrics in run.logged] == [1, 1]
    assert ["lilo/step" in metrics for metrics in run.logged] == [False, True]


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
