"""Each interval is with its reader once: whatever is lost, late, refused or asked at a time."""

from __future__ import annotations

import contextlib
import random
import sys
import threading
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from lilo_timing import (
    SlowAnswerError,
    TimingError,
    _process,
    critical_path_metrics,
    log_critical_path,
    reporting_statistics,
)
from support.timing_readers import ReaderModel, once_each, records
from support.timing_server import TIMEOUT, Answer, Request, TimingServer, error
from support.wandb_runs import report


@pytest.fixture
def model(server: TimingServer) -> ReaderModel:
    """What the server answers from."""
    model = ReaderModel()
    server.answering = model.answer
    return model


class Lossy:
    """Computes every answer, and then loses every other one in one way or another."""

    def __init__(self, model: ReaderModel, chance: random.Random) -> None:
        self.model = model
        self.chance = chance
        self.losing = True

    def __call__(self, request: Request) -> Answer:
        answer = self.model.answer(request)
        if not self.losing:
            return answer
        ways = [replace(answer, lost=True), answer.torn(), error(504), Answer(b"<html>")]
        return self.chance.choice([*ways, *[answer] * len(ways)])


class Rows:
    """A run with rows as W&B's are, which at times refuses to log."""

    def __init__(self, chance: random.Random) -> None:
        self.step = 0
        self.summary: dict[str, float] = {}
        self.committed: list[dict[str, float]] = []
        self.refusing = True
        self._is_finished = False  # as wandb has it
        self._chance = chance
        self._row: dict[str, float] = {}

    def define_metric(self, *args: object, **kwargs: object) -> None:
        pass

    def log(self, metrics: dict[str, Any], commit: bool) -> None:
        if self.refusing and self._chance.random() < 0.3:
            raise OSError("disk full")
        self._row |= metrics

    def commit(self) -> None:
        self.committed.append(self._row)
        self.summary |= self._row
        self._row = {}
        self.step += 1


@pytest.mark.parametrize("seed", range(15))
def test_what_was_lost_is_in_the_next_answer_once(
    server: TimingServer, model: ReaderModel, seed: int
) -> None:
    """`critical_path_metrics`, while answers get lost after they were computed, others read the
    same model without a name, and open intervals are looked at in between."""
    chance = random.Random(seed)
    server.answering = lossy = Lossy(model, chance)
    got: Counter[int] = Counter()
    applied = 0.0
    for step in range(40):
        for _ in range(chance.randrange(3)):
            model.record()
        if chance.random() < 0.2:
            model.answer(Request("GET", "", {"model_id": "m", "reset": "true"}, {}, ("", 0)))
        lossy.losing = step < 39
        reset = step == 39 or chance.random() < 0.7
        with contextlib.suppress(TimingError):
            metrics = critical_path_metrics("m", base_url=server.url, reset=reset)
            assert metrics["lilo/interval.complete"] == 1
            if reset:
                got += records(metrics)
                applied += metrics["lilo/delivery.applied"]
    assert got == once_each(model)
    assert applied == model.recorded


@pytest.mark.parametrize("seed", range(15))
def test_what_a_run_refused_is_in_the_next_report_once(
    server: TimingServer, model: ReaderModel, seed: int
) -> None:
    """`log_critical_path`, while answers get lost, the run refuses reports, and the loop commits
    rows of several reports or none."""
    chance = random.Random(seed)
    server.answering = lossy = Lossy(model, chance)
    run = Rows(chance)
    for step in range(40):
        for _ in range(chance.randrange(3)):
            model.record()
        lossy.losing = run.refusing = step < 39
        report(server, step=step, run=run)
        if step == 39 or chance.random() < 0.4:
            run.commit()
    written: Counter[int] = Counter()
    for row in run.committed:
        written += records(row)
    assert written == once_each(model)
    applied = [row["lilo/delivery.applied"] for row in run.committed if "lilo/step" in row]
    assert sum(applied) == model.recorded
    counts = reporting_statistics()
    assert counts.logged + counts.failed + counts.unlogged == 40
    assert min(counts.logged, counts.failed, counts.unlogged) > 0


def test_threads_that_ask_at_a_time_share_what_there_is(
    server: TimingServer, model: ReaderModel
) -> None:
    """One reader's requests take turns, so that no two of its answers overlap."""
    server.answering = lossy = Lossy(model, random.Random(1))
    got: list[Counter[int]] = []

    def read() -> None:
        for _ in range(20):
            model.record()
            with contextlib.suppress(TimingError):
                got.append(records(critical_path_metrics("m", base_url=server.url)))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
    lossy.losing = False
    got.append(records(critical_path_metrics("m", base_url=server.url)))
    assert sum(got, Counter()) == once_each(model)


def test_an_answer_that_was_too_late_comes_again(server: TimingServer, model: ReaderModel) -> None:
    """Whether the sidecar had computed it by then or does so afterwards."""
    model.record()
    server.hold()
    with pytest.raises(SlowAnswerError):
        critical_path_metrics("m", base_url=server.url, timeout=0.05)
    server.release()
    got = records(critical_path_metrics("m", base_url=server.url))
    model.record()
    got += records(critical_path_metrics("m", base_url=server.url))
    assert got == once_each(model)


def test_a_run_that_is_finished_meanwhile_acknowledges_nothing(
    server: TimingServer, model: ReaderModel
) -> None:
    """Between the answer and the writing: the reader's next request does not say that it was
    received."""
    run = Rows(random.Random(0))
    run.refusing = False
    finished = iter([False, True, False])

    def finishing(request: Request) -> Answer:
        run._is_finished = next(finished)
        return model.answer(request)

    server.answering = finishing
    for _ in range(3):
        run._is_finished = False
        report(server, run=run)
    acks = [request.query.get("ack") for request in server.requests]
    assert acks == [None, "a0.1", "a0.1"]
    assert (reporting_statistics().logged, reporting_statistics().unlogged) == (2, 1)


def test_a_line_that_stdout_did_not_take_comes_again(
    server: TimingServer,
    model: ReaderModel,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without a run the line is the delivery; at the end of the process nothing is printed, and
    nothing acknowledged."""
    with monkeypatch.context() as closed:
        closed.setattr(sys, "stdout", None)
        report(server)
    report(server)
    _process.current_process().reporter().stop(TIMEOUT)
    for _ in range(2):
        report(server)
    acks = [request.query.get("ack") for request in server.requests]
    assert acks == [None, None, "a0.2", "a0.2"]
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert (reporting_statistics().printed, reporting_statistics().unlogged) == (1, 3)


def test_a_look_at_an_open_interval_moves_nothing(server: TimingServer, model: ReaderModel) -> None:
    """`reset=False` acknowledges what was received, and asks for nothing to end."""
    for reset in (True, False, False, True, True):
        critical_path_metrics("m", base_url=server.url, reset=reset)
    queries = [request.query for request in server.requests]
    assert [query.get("ack") for query in queries] == [None, "a0.1", "a0.1", "a0.1", "a0.2"]
    assert ["reset" in query for query in queries] == [True, False, False, True, True]
    assert len({query["reader"] for query in queries}) == 1


def test_a_sidecar_that_lost_its_state_makes_the_interval_incomplete(
    server: TimingServer, model: ReaderModel
) -> None:
    """Once: the next one follows it without a hole. What was recorded since is not lost."""
    whole = []
    for number in range(4):
        model.record()
        if number == 2:
            model.lose_state()
            model.record()
        metrics = critical_path_metrics("m", base_url=server.url)
        whole.append((metrics["lilo/interval.complete"], len(records(metrics))))
    assert whole == [(1, 1), (1, 1), (0, 1), (1, 1)]


def test_somebody_else_who_reads_under_the_same_name_shows(
    server: TimingServer, model: ReaderModel
) -> None:
    """What they acknowledged is missing here, and the interval says so, though the server could
    not know."""
    critical_path_metrics("m", base_url=server.url, reader="shared")
    query = {"model_id": "m", "reader": "shared", "reset": "true"}
    for ack in ("a0.1", "a0.2"):
        model.record()
        model.answer(Request("GET", "", {**query, "ack": ack}, {}, ("", 0)))
    metrics = critical_path_metrics("m", base_url=server.url, reader="shared")
    assert metrics["lilo/interval.complete"] == 0


def test_a_merged_row_is_complete_if_all_of_it_is(server: TimingServer, model: ReaderModel) -> None:
    """Delivery's counts add up in it as the phases do."""
    run = Rows(random.Random(0))
    run.refusing = False
    for _ in range(3):
        model.record()
        report(server, run=run)
        run.commit()
        model.record()
        report(server, run=run)
        model.lose_state()
    log_critical_path("m", base_url=server.url, run=run, background=False)
    run.commit()
    assert [row["lilo/interval.complete"] for row in run.committed] == [1, 0, 0, 0]
    assert [row["lilo/delivery.applied"] for row in run.committed] == [1, 2, 2, 1]
