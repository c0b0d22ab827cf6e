"""Whose intervals are read: by default those of a reader that nobody else has."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lilo_timing import (
    BadRequestError,
    InvalidCallError,
    critical_path_metrics,
    flush_critical_path,
    log_critical_path,
    reporting_statistics,
)
from lilo_timing._readers import MAX_READER, checked_reader
from support.logs import logged
from support.timing_server import TIMEOUT, TimingServer, error
from support.wandb_runs import report


class Run:
    """A run of another make than W&B's."""

    def log(self, metrics: dict[str, Any], commit: bool) -> None:
        pass


def readers(server: TimingServer) -> list[str]:
    """Those of the requests so far."""
    return [request.query["reader"] for request in server.requests]


def test_each_run_and_each_function_has_a_reader_of_its_own(server: TimingServer) -> None:
    """The same one each time; a report without a run and `critical_path_metrics` have theirs."""
    first, second = Run(), Run()
    for _ in range(2):
        report(server, run=first)
        report(server, run=second)
        report(server)
        critical_path_metrics("m", base_url=server.url)
    names = readers(server)
    assert names[:4] == names[4:]
    assert len(set(names)) == 4
    assert all(checked_reader(name) == name for name in names), "the sidecar takes them"
    assert [name.partition("-")[0] for name in names[:4]] == ["loop", "loop", "loop", "metrics"]


def test_two_runs_of_a_model_do_not_keep_each_other_out(server: TimingServer) -> None:
    """A report to one run is no reason to leave out one to another, whose reader is another."""
    first, second = Run(), Run()
    server.hold()
    for run in (first, second, first, second):
        log_critical_path("m", base_url=server.url, run=run)
    server.release()
    assert flush_critical_path(TIMEOUT)
    assert (reporting_statistics().logged, reporting_statistics().overlapping) == (2, 2)


def test_a_reader_can_be_named(
    server: TimingServer, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """By a loop that wants to go on after a restart; nothing else about the report changes."""
    report(server, reader="loop.1_a-B")
    assert json.loads(capsys.readouterr().out)["event"] == "lilo_critical_path"
    critical_path_metrics("m", base_url=server.url, reader="x" * MAX_READER)
    assert readers(server) == ["loop.1_a-B", "x" * MAX_READER]
    assert logged(caplog) == []


@pytest.mark.parametrize("reader", ["", "a b", "a/b", "ä", "x" * (MAX_READER + 1), "a\n", b"a", 7])
def test_a_name_that_no_sidecar_takes_is_refused(
    server: TimingServer, caplog: pytest.LogCaptureFixture, reader: Any
) -> None:
    """Before anything is sent, and the message says what is allowed."""
    with pytest.raises(InvalidCallError, match=r"pass 1 to 64 characters of A-Z a-z 0-9 \. _ -"):
        critical_path_metrics("m", base_url=server.url, reader=reader)
    log_critical_path("m", base_url=server.url, reader=reader)
    assert "pass 1 to 64 characters" in caplog.text
    assert reporting_statistics().invalid == 1
    assert server.requests == []


def test_a_server_without_readers_is_to_be_updated(server: TimingServer) -> None:
    """An older control plane, or an older sidecar behind it, refuses the parameter; the error
    says what to do about it, beside the server's own words."""
    server.answering = lambda _: error(
        400, "unknown_parameter", "unknown parameter 'reader'; there are model_id and reset"
    )
    with pytest.raises(BadRequestError) as caught:
        critical_path_metrics("m", base_url=server.url)
    assert "update lilo-timing in the control plane and beside the trainer" in str(caught.value)
    assert "unknown parameter 'reader'" in str(caught.value)
