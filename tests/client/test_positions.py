"""The cursors that are kept: bounded, and safe across threads and forks."""

from __future__ import annotations

import logging
import threading

import pytest

import lilo_timing
from lilo_timing import SlowAnswerError, critical_path_metrics, reporting_statistics
from lilo_timing._positions import MAX_POSITIONS, Positions
from support.timing_readers import ReaderModel
from support.timing_server import TIMEOUT, TimingServer, timing_server


@pytest.fixture
def model(server: TimingServer) -> ReaderModel:
    """What the server answers from."""
    model = ReaderModel()
    server.answering = model.answer
    return model


def test_positions_are_of_a_server_a_model_and_a_reader(
    server: TimingServer, model: ReaderModel
) -> None:
    """No cursor gets to where it was not given."""
    with timing_server(model.answer) as other:
        for url in (server.url, other.url):
            for model_id in ("a", "b"):
                for reader in ("r", "s"):
                    critical_path_metrics(model_id, base_url=url, reader=reader)
        critical_path_metrics("a", base_url=server.url, reader="r")
        requests = [*server.requests, *other.requests]
    assert [request.query.get("ack") for request in requests] == [*[None] * 4, "a0.1", *[None] * 4]


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
        positions._of(("http://a", str(number), "r"))
    assert len(positions._positions) == MAX_POSITIONS
    assert reporting_statistics().positions_evicted == 10
    assert lilo_timing.ReportingStatistics().positions_evicted == 0
