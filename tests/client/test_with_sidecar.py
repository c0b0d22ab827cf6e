"""The client and a real sidecar, with a network in between that loses answers."""

from __future__ import annotations

import contextlib
import json
import random
from pathlib import Path

import pytest

from lilo_timing import TimingError, critical_path_metrics, flush_critical_path, log_critical_path
from support.producer import Producer
from support.sidecar import start_sidecar
from support.timing_server import TIMEOUT, Answer, Request, timing_server

COUNT = "lilo/forward_backward.execute.count"


def test_two_readers_get_every_execution_once_whatever_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A loop's reports and a caller of `critical_path_metrics`, while every other answer is lost
    after the sidecar has computed it, and somebody resets the model by hand."""
    chance = random.Random(7)
    losing = True
    with start_sidecar(tmp_path) as sidecar, Producer(sidecar.socket) as producer:

        def lossy(request: Request) -> Answer:
            answer = sidecar.http.get(request.path, params=request.query)
            return Answer(answer.content, answer.status_code, lost=losing and chance.random() < 0.5)

        with timing_server(lossy) as between:
            producer.greet()
            done = returned = 0
            for step in range(60):
                for _ in range(chance.randrange(3)):
                    producer.work()
                    done += 1
                if chance.random() < 0.3:
                    sidecar.timing("m", reset=True)
                losing = step < 59
                with contextlib.suppress(TimingError):
                    metrics = critical_path_metrics("m", base_url=between.url)
                    returned += int(metrics.get(COUNT, 0))
                log_critical_path("m", step=step, base_url=between.url)
                assert flush_critical_path(TIMEOUT)
            lines = [json.loads(line)["metrics"] for line in capsys.readouterr().out.splitlines()]
    assert returned == done
    assert sum(line.get(COUNT, 0) for line in lines) == done
    assert {line["lilo/interval.complete"] for line in lines} == {1}
    assert 10 < len(lines) < 60, "answers were lost, and others were not"
