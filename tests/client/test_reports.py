"""`log_critical_path` without a run: in the background, on stdout, never in the loop's way."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import types
from typing import Any

import httpx
import numpy as np
import pytest

import lilo_timing
from lilo_timing import _process, flush_critical_path, log_critical_path, reporting_statistics
from lilo_timing._worker import MAX_WAITING
from support.logs import logged
from support.timely import assert_within
from support.timing_readers import ReaderModel
from support.timing_server import (
    TIMEOUT,
    Answer,
    Request,
    TimingServer,
    error,
    ok,
    timing,
    timing_server,
    unused_url,
)

_METRICS = lilo_timing.critical_path_metrics


def printed(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """The JSON lines on stdout since the last look."""
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def counts() -> dict[str, int]:
    """The statistics that are not 0."""
    statistics = reporting_statistics()
    values = statistics._asdict()
    return {name: value for name, value in values.items() if value}


def test_without_a_run_a_report_is_one_json_line(
    server: TimingServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its event, model, step and metrics; the call itself returns nothing."""
    assert log_critical_path("m", step=3, base_url=server.url) is None
    assert flush_critical_path(TIMEOUT)
    metrics = _METRICS("m", base_url=server.url)
    line = {"event": "lilo_critical_path", "model_id": "m", "step": 3, "metrics": metrics}
    assert printed(capsys) == [line]
    assert counts() == {"printed": 1}


def test_the_loop_goes_on_while_the_server_does_not_answer(
    server: TimingServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """The call is back before there is an answer, and nothing is said until there is one."""
    server.hold()
    log_critical_path("m", base_url=server.url)
    server.wait_for(1)
    assert printed(capsys) == []
    assert not flush_critical_path(0.01)
    server.release()
    assert flush_critical_path(TIMEOUT)
    assert len(printed(capsys)) == 1


def test_a_blocking_report_returns_what_was_reported(
    server: TimingServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """`background=False` waits; it reports just the same."""
    metrics = log_critical_path("m", base_url=server.url, background=False, prefix="x/")
    (line,) = printed(capsys)
    assert line["metrics"] == metrics
    assert metrics is not None
    assert metrics["x/forward_backward.execute.count"] == 1


def test_a_blocking_report_that_fails_returns_none() -> None:
    """It raises as little as any other."""
    assert log_critical_path("m", base_url=unused_url(), background=False) is None
    assert counts() == {"failed": 1}


def test_a_blocking_report_waits_no_longer_than_its_timeout(
    server: TimingServer, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Not for others' reports before it, either. It is made all the same, when its turn comes."""
    with timing_server() as slow:
        slow.hold()
        log_critical_path("other", base_url=slow.url, timeout=TIMEOUT)
        models = ["other"]

        def report() -> None:
            model = f"m{len(models)}"
            models.append(model)
            report = log_critical_path(model, base_url=server.url, timeout=0.2, background=False)
            assert report is None
            assert f"the report of model {model!r} is not made yet after 0.2 s" in caplog.text

        assert_within(2.0, report)
        assert counts() == {}
        slow.release()
        assert flush_critical_path(TIMEOUT)
    assert [line["model_id"] for line in printed(capsys)] == models
    assert counts() == {"printed": len(models)}


def test_a_model_that_the_sidecar_does_not_know_is_told(
    server: TimingServer, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """It answers with no figures and no account, which would read as if all were well. Once the
    model is known, its interval is complete: nothing of it was ended."""
    model = ReaderModel()
    unknown = True

    def answering(request: Request) -> Answer:
        answer = model.answer(request)
        if not unknown:
            return answer
        content = json.loads(answer.body)
        return ok({**content, "phases": {}, "step": None, "interval": {
            **content["interval"], "cursor": None, "from": "a0.0",
        }})  # fmt: skip

    server.answering = answering
    for _ in range(2):
        log_critical_path("typo", base_url=server.url, background=False)
    with pytest.raises(lilo_timing.UnknownModelError, match="knows no model 'typo'"):
        _METRICS("typo", base_url=server.url)
    assert printed(capsys) == []
    assert caplog.text.count("knows no model 'typo'; is the model_id right?") == 1
    unknown = False
    model.record()
    log_critical_path("typo", base_url=server.url, background=False)
    (line,) = printed(capsys)
    assert line["metrics"]["lilo/interval.complete"] == 1
    assert counts() == {"failed": 2, "printed": 1}


def test_a_blocking_report_comes_after_one_in_flight(
    server: TimingServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is not dropped for it, since its caller wants the metrics."""
    server.hold()
    log_critical_path("m", step=1, base_url=server.url)
    server.wait_for(1)
    threading.Thread(target=server.release).start()
    assert log_critical_path("m", step=2, base_url=server.url, background=False) is not None
    assert [line["step"] for line in printed(capsys)] == [1, 2]


def test_a_report_of_a_model_in_flight_is_dropped_and_the_next_covers_both(
    server: TimingServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """One at a time: the dropped call asks for nothing, so the interval stays open on the
    server. It is counted. Other models are reported meanwhile."""
    server.hold()
    log_critical_path("a", step=1, base_url=server.url)
    server.wait_for(1)
    log_critical_path("a", step=2, base_url=server.url)
    log_critical_path("b", step=2, base_url=server.url)
    log_critical_path("b", step=3, base_url=server.url)  # waits its turn: in flight, too
    server.release()
    assert flush_critical_path(TIMEOUT)
    log_critical_path("a", step=3, base_url=server.url)
    assert flush_critical_path(TIMEOUT)
    reported = [(line["model_id"], line["step"]) for line in printed(capsys)]
    assert reported == [("a", 1), ("b", 2), ("a", 3)]
    assert [request.query["model_id"] for request in server.requests] == ["a", "b", "a"]
    assert counts() == {"printed": 3, "overlapping": 2}


def test_the_same_name_on_two_servers_is_two_models(
    server: TimingServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """A report to another control plane does not overlap with one to this."""
    with timing_server() as other:
        server.hold()
        log_critical_path("m", base_url=server.url)
        log_critical_path("m", base_url=other.url)
        server.release()
        assert flush_critical_path(TIMEOUT)
        assert len(other.requests) == 1
    assert counts() == {"printed": 2}


def test_reports_that_wait_are_bounded(server: TimingServer) -> None:
    """Past the bound a report is turned away and counted, and the loop still does not wait."""
    server.hold()
    log_critical_path("first", base_url=server.url)
    server.wait_for(1)
    for number in range(MAX_WAITING + 1):
        log_critical_path(f"m{number}", base_url=server.url)
    assert counts() == {"turned_away": 1}
    server.release()
    assert flush_critical_path(TIMEOUT)
    assert counts() == {"turned_away": 1, "printed": MAX_WAITING + 1}


class _Hostile:
    """Raises at whatever is done to it."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __repr__(self) -> str:
        raise RuntimeError("repr")

    def __bool__(self) -> bool:
        raise RuntimeError("bool")

    def __index__(self) -> int:
        raise RuntimeError("index")


@pytest.mark.parametrize(
    "arguments",
    [
        *(
            {name: value}
            for name in (
                "model_id", "step", "base_url", "api_key", "prefix", "timeout", "transport", "run",
                "reader",
            )
            for value in (_Hostile(), object(), [], b"x", float("nan"), "", "\ud800", "x" * 10**6)
        ),
        {"reset": _Hostile()},
        {"background": _Hostile()},
        {"model_id": None},
        {"timeout": -1},
        {"timeout": 10**400},
        {"step": float("inf")},
        {"prefix": None},
        {"api_key": "a\r\nb"},
    ],
)  # fmt: skip
@pytest.mark.parametrize("background", [True, False])
def test_whatever_is_passed_nothing_is_raised(arguments: dict[str, Any], background: bool) -> None:
    """A training loop never fails for its timing, and no call goes uncounted."""
    given: dict[str, Any] = {
        "model_id": "m",
        "base_url": unused_url(),
        "background": background,
        **arguments,
    }
    log_critical_path(given.pop("model_id"), **given)
    assert flush_critical_path(TIMEOUT)
    assert sum(counts().values()) == 1


def test_flush_raises_nothing_either() -> None:
    """Not for a timeout that is none."""
    assert not flush_critical_path(None)  # type: ignore[arg-type]
    assert flush_critical_path(float("inf"))


class _Scalar:
    """A number as torch has it: of no dimension, whole or not."""

    def __init__(self, value: float) -> None:
        self._value = value

    def __index__(self) -> int:
        if self._value % 1:
            raise TypeError("only integer tensors can be an index")
        return int(self._value)

    def __float__(self) -> float:
        return self._value


def test_steps_of_any_numeric_type_are_plain_numbers(
    server: TimingServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """A counter of numpy's or torch's can be the step."""
    for step in (np.int64(3), np.float32(0.5), _Scalar(7.0), _Scalar(0.25), True):
        log_critical_path("m", step=step, base_url=server.url, background=False)
    assert [line["step"] for line in printed(capsys)] == [3, 0.5, 7, 0.25, 1]


def test_a_failure_is_a_warning_once_per_kind_and_counted_always(
    server: TimingServer, caplog: pytest.LogCaptureFixture
) -> None:
    """A loop of a million steps does not fill the log; a failure of another kind still shows."""
    caplog.set_level(logging.DEBUG, "lilo_timing")
    server.answering = lambda _: error(503)
    for _ in range(3):
        log_critical_path("m", base_url=server.url, background=False)
    server.answering = lambda _: error(404)
    log_critical_path("m", base_url=server.url, background=False)
    warnings = [r for r in logged(caplog) if r.levelno >= logging.WARNING]
    assert {record.name for record in warnings} == {"lilo_timing"}
    texts = [record.getMessage() for record in warnings]
    assert [("(503: " in text, "no model" in text) for text in texts] == [
        (True, False),
        (False, True),
    ]
    assert counts() == {"failed": 4}


def test_no_key_gets_into_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """At no level, whatever fails."""
    caplog.set_level(logging.DEBUG)
    for key in ("tml-secret", "tml-secret\n", " tml-secret", "tml-secr\xe9t"):
        log_critical_path("m", base_url=unused_url(), api_key=key, background=False)
    assert "lilo_timing" in {record.name for record in caplog.records}
    assert "tml-secr" not in caplog.text


def test_a_missing_base_url_says_what_to_set(caplog: pytest.LogCaptureFixture) -> None:
    """The commonest mistake, which would otherwise go unnoticed."""
    log_critical_path("m")
    assert "set TINKER_BASE_URL or pass base_url=" in caplog.text


def test_a_transport_that_fails_in_its_own_way_is_swallowed() -> None:
    """Not only httpx's own errors are."""

    class Broken(httpx.BaseTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            raise ZeroDivisionError

    log_critical_path("m", base_url="http://a", transport=Broken(), background=False)
    log_critical_path(
        "m",
        base_url="http://a",
        transport=httpx.MockTransport(lambda _: httpx.Response(200, json=timing())),
        background=False,
    )
    assert counts() == {"failed": 1, "printed": 1}


def test_a_closed_stdout_is_swallowed(
    server: TimingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemonized loop may have none."""
    monkeypatch.setattr(sys, "stdout", None)
    assert log_critical_path("m", base_url=server.url, background=False) is None
    assert counts() == {"unlogged": 1}


def test_an_answer_that_comes_while_the_process_ends_is_not_written(
    server: TimingServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """A daemon thread that writes while the interpreter is taken down can crash it."""
    server.hold()
    log_critical_path("m", base_url=server.url)
    server.wait_for(1)
    _process.current_process().reporter().stop(TIMEOUT)
    server.release()
    assert flush_critical_path(TIMEOUT)
    assert printed(capsys) == []
    assert counts() == {"unlogged": 1}


def test_several_live_runs_need_to_be_told_apart(
    server: TimingServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No guess is made, and nothing is fetched for it: the interval stays open. (With the real
    wandb in test_wandb_runs.py.)"""

    class Run:
        def log(self, metrics: object, commit: bool) -> None:
            raise AssertionError

    setup = types.ModuleType("wandb.sdk.wandb_setup")
    setup._singleton = types.SimpleNamespace(  # type: ignore[attr-defined]
        _pid=os.getpid(), _active_runs=[Run(), Run()]
    )
    monkeypatch.setitem(sys.modules, "wandb", types.ModuleType("wandb"))
    monkeypatch.setitem(sys.modules, "wandb.sdk.wandb_setup", setup)
    for _ in range(2):
        log_critical_path("m", base_url=server.url, background=False)
    assert caplog.text.count("2 W&B runs are live; pass the one to log to as run=") == 1
    assert server.requests == []
    assert counts() == {"ambiguous": 2}
