"""Which row of a real W&B run a report is in, offline: what the run's own file holds in the end."""

from __future__ import annotations

from typing import Any

import pytest

from lilo_timing import reporting_statistics
from support.timing_readers import ReaderModel, records
from support.timing_server import TimingServer, ok, phase, timing
from support.wandb_history import metric_definitions
from support.wandb_runs import EXECUTE, Interrupted, Runs, figures, intervals, report


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


class Refusing(Interrupted):
    """One that also refuses the correction of what the commit made wrong."""

    def __init__(self, run: Any) -> None:
        super().__init__(run)
        self.refuse_in = -1

    def log(self, metrics: dict[str, Any], commit: bool) -> None:
        if self.interrupt:
            self.refuse_in = 1
        elif self.refuse_in > 0:
            self.refuse_in -= 1
            raise OSError("disk full")
        super().log(metrics, commit)


def test_a_correction_that_is_refused_is_made_by_the_next_report(
    runs: Runs, server: TimingServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The run has the report by then, so it does not come again; what the committed row has as
    well is taken out with the next one, and a phase that only that has becomes 0."""
    model = ReaderModel()
    server.answering = model.answer
    run = runs.start()
    refusing = Refusing(run)
    for number in range(3):
        model.record()
        refusing.interrupt = number == 1
        report(server, run=refusing)
    run.log({"loss": 2.0})
    found = [records(row) for row in runs.rows(run)]
    assert found == [{0: 1}, {0: 0, 1: 1, 2: 1}]
    assert caplog.text.count("did not take a correction") == 1
    assert reporting_statistics().logged == 3


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
