"""Which model has a prefix of a real W&B run, offline: the first, until it has gone silent."""

from __future__ import annotations

from typing import Any

import pytest

from lilo_timing import _process, reporting_statistics
from lilo_timing._run_log import MAX_PREFIXES, MAX_RIVALS, SILENCE
from support.timing_server import Answer, TimingServer, error, ok, timing
from support.wandb_runs import Runs, figures, report


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


class Clock:
    """Seconds, as the test says."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """By which models are silent."""
    clock = Clock()
    _process.current_process().reporter()._runs.clock = clock
    return clock


def steps(runs: Runs, run: Any) -> list[float]:
    """Those of the reports in a run's rows."""
    return [row["lilo/step"] for row in runs.rows(run) if "lilo/step" in row]


def test_a_loop_may_go_on_with_a_new_model(runs: Runs, server: TimingServer, clock: Clock) -> None:
    """A trainer was restarted and the loop has a new model in the same run: the new one's third
    report is logged, if the old one has been silent for a minute by then, and its figures are
    committed."""
    run = runs.start()
    report(server, "old", step=1)
    for step in (2, 3, 4):
        clock.now += SILENCE
        report(server, "new", step=step)
    assert reporting_statistics().ambiguous == 3, "the old one's figures wait for their commit"
    run.log({"loss": 1.0})
    report(server, "new", step=5)
    run.log({"loss": 2.0})
    for step in (6, 7, 8):
        report(server, "newer", step=step)
    clock.now += SILENCE
    report(server, "newer", step=9)
    assert reporting_statistics().ambiguous == 6, "it was not silent for long enough"
    assert steps(runs, run) == [1, 5, 9]


def test_a_slow_loop_keeps_its_prefix_beside_a_fast_one(
    runs: Runs, server: TimingServer, clock: Clock
) -> None:
    """However many reports of the other come between its own."""
    run = runs.start()
    for step in range(3):
        report(server, "slow", step=step)
        run.log({"loss": 1.0})
        for _ in range(5):
            clock.now += SILENCE / 6
            report(server, "fast", step=100)
            run.log({"loss": 1.0})
    assert steps(runs, run) == [0, 1, 2]


def test_a_model_that_was_silent_for_long_gets_its_prefix_back(
    runs: Runs, server: TimingServer, clock: Clock
) -> None:
    """With its next report: the other one was no successor, and never gets it again."""
    run = runs.start()
    for step in range(3):
        report(server, "slow", step=step)
        run.log({"loss": 1.0})
        for _ in range(5):
            clock.now += SILENCE
            report(server, "fast", step=100 + step)
            run.log({"loss": 1.0})
    assert steps(runs, run) == [0, 100, 100, 100, 1, 2]


def test_rivals_of_a_prefix_are_bounded(server: TimingServer, clock: Clock) -> None:
    """With too many it passes to nobody."""

    class Other:
        def log(self, metrics: dict[str, Any], commit: bool) -> None:
            pass

    run = Other()
    for number in range(MAX_RIVALS + 2):
        report(server, "old", run=run)
        clock.now += SILENCE
        for _ in range(3):
            report(server, f"m{number}", run=run)
    (series,) = _process.current_process().reporter()._runs._runs[run].values()
    assert series.model_id == "old"
    assert len(series._rivals) == MAX_RIVALS


_UNKNOWN = timing({}, step=None, interval={"from": "a.0", "cursor": None, "complete": True})


@pytest.mark.parametrize("answer", [error(404), ok(_UNKNOWN)], ids=["no route", "unknown"])
def test_a_model_that_is_not_known_takes_no_prefix(
    runs: Runs, server: TimingServer, clock: Clock, answer: Answer
) -> None:
    """A wrong id that the control plane, or the sidecar, does not know: it keeps the right one
    neither out nor waiting, however long that was silent."""
    run = runs.start()
    good = server.answering
    for step in (1, 2):
        server.answering = lambda _: answer
        for _ in range(4):
            report(server, "typo")
            clock.now += SILENCE
        server.answering = good
        report(server, "right", step=step)
        run.log({"loss": 1.0})
    assert steps(runs, run) == [1, 2]


def test_prefixes_of_a_run_are_bounded(runs: Runs, server: TimingServer) -> None:
    """A prefix too many is refused and counted."""
    runs.start()
    for number in range(MAX_PREFIXES + 1):
        report(server, f"m{number}", prefix=f"p{number}")
    assert (reporting_statistics().logged, reporting_statistics().ambiguous) == (MAX_PREFIXES, 1)
