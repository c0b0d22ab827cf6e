"""The cursors that are kept: bounded, and safe across threads and forks."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter

import pytest

import lilo_timing
from lilo_timing import SlowAnswerError, _process, critical_path_metrics, reporting_statistics
from lilo_timing._positions import MAX_POSITIONS, MAX_STATES, Positions
from support.timing_readers import ReaderModel, once_each, records
from support.timing_server import TIMEOUT, Answer, Request, TimingServer, timing_server


@pytest.fixture
def model(server: TimingServer) -> ReaderModel:
    """What the server answers from."""
    model = ReaderModel()
    server.answering = model.answer
    return model


def test_positions_are_of_a_state_a_model_and_a_reader(
    server: TimingServer, model: ReaderModel
) -> None:
    """No cursor gets to where it was not given."""
    with timing_server(ReaderModel(0xB0).answer) as other:
        for url in (server.url, other.url):
            for model_id in ("a", "b"):
                for reader in ("r", "s"):
                    critical_path_metrics(model_id, base_url=url, reader=reader)
        critical_path_metrics("a", base_url=server.url, reader="r")
        acks = [[r.query.get("ack") for r in asked.requests] for asked in (server, other)]
    assert acks == [[*[None] * 4, "a0.1"], [None] * 4]


def test_one_sidecar_under_two_urls_is_one(server: TimingServer, model: ReaderModel) -> None:
    """However it is spelled, a figure comes once, and its interval has no hole."""
    got: Counter[int] = Counter()
    for host in ("127.0.0.1", "localhost", "localhost", "127.0.0.1"):
        model.record()
        url = server.url.replace("127.0.0.1", host)
        metrics = critical_path_metrics("m", base_url=url)
        assert metrics["lilo/interval.complete"] == 1
        got += records(metrics)
    assert got == once_each(model)


@pytest.mark.parametrize("seed", range(10))
def test_a_model_that_is_moved_and_comes_back_goes_on_where_it_was(
    server: TimingServer, seed: int
) -> None:
    """Behind one URL, from trainer to trainer: nothing is given twice, and the first interval
    after each move says that it does not follow the last one."""
    chance = random.Random(seed)
    trainers = [ReaderModel(first_epoch) for first_epoch in (0xA0, 0xB0, 0xC0)]
    got: list[Counter[int]] = [Counter() for _ in trainers]
    here, heard = 0, None
    server.answering = lambda request: trainers[here].answer(request)
    for step in range(30):
        here = chance.randrange(3) if step < 27 else step - 27
        trainers[here].record()
        metrics = critical_path_metrics("m", base_url=server.url)
        assert metrics["lilo/interval.complete"] == (heard in (None, here))
        got[here] += records(metrics)
        heard = here
    assert got == [once_each(trainer) for trainer in trainers]


def test_states_that_are_remembered_are_bounded(server: TimingServer, model: ReaderModel) -> None:
    """Of one reader, the latest few: a sidecar that loses its state again and again fills
    nothing."""
    for _ in range(3 * MAX_STATES):
        critical_path_metrics("m", base_url=server.url, reader="r")
        model.lose_state()
    (position,) = _process.current_process().reporter().positions._positions.values()
    assert len(position.received) == MAX_STATES


def test_all_requests_of_a_reading_share_its_timeout(server: TimingServer) -> None:
    """Also where one finds that the model is back on an earlier trainer, and asks again."""
    trainers = [ReaderModel(0xA0), ReaderModel(0xB0)]
    for trainer in trainers:
        server.answering = trainer.answer
        critical_path_metrics("m", base_url=server.url)
    late = threading.Event()

    def slow_then_silent(request: Request) -> Answer:
        late.wait(1.0 if len(server.requests) == 3 else TIMEOUT)
        return trainers[0].answer(request)

    server.answering = slow_then_silent
    began = time.monotonic()
    with pytest.raises(SlowAnswerError, match=r"within 2 s"):
        critical_path_metrics("m", base_url=server.url, timeout=2.0)
    assert time.monotonic() - began < 1.0 + 2.0, "2 s for both"
    late.set()
    assert len(server.requests) == 4


def test_a_request_waits_for_its_turn_no_longer_than_its_timeout(
    server: TimingServer, model: ReaderModel
) -> None:
    """While the reader's last request is under way; the message says what to do instead."""
    server.hold()
    first = threading.Thread(
        target=critical_path_metrics, args=["m"], kwargs={"base_url": server.url, "reader": "r"}
    )
    first.start()
    server.wait_for(1)
    with pytest.raises(SlowAnswerError, match=r"'r' of model 'm'.*0\.05 s.*pass a reader= of its"):
        critical_path_metrics("m", base_url=server.url, reader="r", timeout=0.05)
    server.release()
    first.join(TIMEOUT)
    critical_path_metrics("m", base_url=server.url, reader="r")
    assert [request.query.get("ack") for request in server.requests] == [None, "a0.1"]


def test_the_position_that_was_not_used_for_longest_goes(
    server: TimingServer,
    model: ReaderModel,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """At the bound; it is counted, and said once. (At a bound of 2: 8,192 requests take long.)"""
    monkeypatch.setattr("lilo_timing._positions.MAX_POSITIONS", 2)
    caplog.set_level(logging.WARNING, "lilo_timing")
    for model_id in ("a", "b", "a", "c", "a", "b"):
        critical_path_metrics(model_id, base_url=server.url)
    given = [request.query.get("ack") is not None for request in server.requests]
    assert given == [False, False, True, False, True, False]
    assert reporting_statistics().positions_evicted == 2
    assert caplog.text.count("its last interval comes a second time") == 1


def test_positions_are_bounded() -> None:
    """However many models a process asks about."""
    positions = Positions()
    for number in range(MAX_POSITIONS + 10):
        positions._of((str(number), "r"))
    assert len(positions._positions) == MAX_POSITIONS
    assert reporting_statistics().positions_evicted == 10
    assert lilo_timing.ReportingStatistics().positions_evicted == 0
