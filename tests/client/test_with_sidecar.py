"""The client and a real sidecar, with a network in between that loses answers."""

from __future__ import annotations

import contextlib
import json
import random
from pathlib import Path

import anyio
import pytest

from lilo_engine_hook import wire
from lilo_timing import (
    SidecarEndpoint,
    TimingError,
    TimingPoller,
    UnknownModelError,
    critical_path_metrics,
    flush_critical_path,
    log_critical_path,
)
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


@pytest.mark.parametrize("seed", range(3))
def test_a_model_that_is_moved_between_trainers_is_counted_once(tmp_path: Path, seed: int) -> None:
    """There and back behind one control plane, while requests are lost before the sidecar has
    seen them, and answers after it has computed them: what each trainer did is reported once, as
    soon as the model is asked for there again."""
    chance = random.Random(seed)
    with contextlib.ExitStack() as stack:
        sidecars, producers = [], []
        for name in ("a", "b"):
            (tmp_path / name).mkdir(mode=0o700)
            sidecars.append(stack.enter_context(start_sidecar(tmp_path / name)))
            producers.append(stack.enter_context(Producer(sidecars[-1].socket, name)))
            producers[-1].greet()
            producers[-1].work()
        here, losing = 0, True
        done, got = [1, 1], [0, 0]

        def relayed(request: Request) -> Answer:
            fate = chance.choice(["unseen", "lost", "well", "well"]) if losing else "well"
            if fate == "unseen":
                return Answer(b"", lost=True)
            answer = sidecars[here].http.get(request.path, params=request.query)
            return Answer(answer.content, answer.status_code, lost=fate == "lost")

        control_plane = stack.enter_context(timing_server(relayed))
        for step in range(60):
            losing = step < 58
            here = chance.randrange(2) if losing else step - 58
            producers[here].work()
            done[here] += 1
            with contextlib.suppress(TimingError):
                metrics = critical_path_metrics("m", base_url=control_plane.url)
                got[here] += int(metrics.get(COUNT, 0))
    assert got == done


def test_a_poller_is_not_disturbed_by_who_resets(tmp_path: Path) -> None:
    """The aggregate that it reads is never anybody else's interval, so that what waited between
    two polls stays to be seen."""
    with start_sidecar(tmp_path) as sidecar, Producer(sidecar.socket) as producer:
        producer.greet()

        async def counted() -> list[int]:
            counts = []
            async with TimingPoller({"a": SidecarEndpoint(sidecar.url)}, 0.01) as poller:
                for expected in (1, 2, 3):
                    producer.work()
                    with anyio.fail_after(TIMEOUT):
                        while _executions(poller) != expected:  # noqa: ASYNC110
                            await anyio.sleep(0.01)
                    counts.append(_executions(poller))
                    sidecar.timing(reset=True)
            return counts

        assert anyio.run(counted) == [1, 2, 3]


def _executions(poller: TimingPoller) -> int:
    answer = poller.latest()["a"].answer or {"phases": {}}
    return int(answer["phases"].get("forward_backward.execute", {}).get("count", 0))


def test_a_model_that_nobody_registered_is_unknown(tmp_path: Path) -> None:
    """To a caller, who may have mistyped it; not one that has done nothing yet."""
    with start_sidecar(tmp_path) as sidecar, Producer(sidecar.socket) as producer:
        producer.greet()
        with pytest.raises(UnknownModelError, match="knows no model 'm'"):
            critical_path_metrics("m", base_url=sidecar.url)
        producer.send(wire.Register(0.0, "m"))
        assert critical_path_metrics("m", base_url=sidecar.url)["lilo/interval.complete"] == 1
