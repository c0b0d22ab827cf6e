"""The poller of all trainers, against real HTTP servers, on asyncio and trio."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from lilo_timing import SidecarEndpoint, TimingPoller, TrainerTiming, _poller, least_waiting
from lilo_timing._http import MAX_ANSWER
from lilo_timing._poller import JITTER, MAX_BACKOFF, pause
from support.timing_server import (
    TIMEOUT,
    Answer,
    TimingServer,
    error,
    ok,
    phase,
    silent_server,
    timing,
    timing_server,
    unused_url,
)

TOKEN = "sidecar-token"
INTERVAL = 0.01


def polling(
    backend: str,
    endpoints: dict[str, str],
    watching: Callable[[TimingPoller], Awaitable[Any]],
    interval: float = INTERVAL,
) -> Any:
    """Run ``watching`` while the trainers at these URLs are polled."""

    async def main() -> Any:
        with anyio.fail_after(TIMEOUT):
            sidecars = {name: SidecarEndpoint(url, TOKEN) for name, url in endpoints.items()}
            async with TimingPoller(sidecars, interval) as poller:
                return await watching(poller)

    return anyio.run(main, backend=backend)


async def until(
    poller: TimingPoller, name: str, wanted: Callable[[TrainerTiming], bool]
) -> TrainerTiming:
    """What is known of the trainer, once it is what is ``wanted``."""
    await eventually(lambda: wanted(poller.latest()[name]))
    return poller.latest()[name]


async def eventually(condition: Callable[[], bool]) -> None:
    """Until it holds; nobody notifies about it."""
    while not condition():  # noqa: ASYNC110
        await anyio.sleep(INTERVAL / 5)


def failing(failures: int) -> Callable[[TrainerTiming], bool]:
    """That many polls in a row have failed."""
    return lambda timing: timing.consecutive_failures >= failures


def answered(known: TrainerTiming) -> bool:
    """There is an answer, and no failure since."""
    return known.answer is not None and not known.consecutive_failures


def test_the_latest_answer_of_each_trainer_is_there(backend: str, server: TimingServer) -> None:
    """As the sidecar gave it, with its age. The aggregate is asked for, with the token, as a
    reader of its own, and nothing is reset."""

    async def watching(poller: TimingPoller) -> TrainerTiming:
        return await until(poller, "a", answered)

    known = polling(backend, {"a": server.url}, watching)
    assert known.answer == timing()
    assert known.age_s is not None
    assert known.age_s >= 0
    assert (known.error, known.consecutive_failures) == (None, 0)
    for request in server.requests:
        assert (request.method, request.path) == ("GET", "/api/v1/timing")
        assert request.query == {"reader": "lilo-poller"}
        assert request.headers["authorization"] == f"Bearer {TOKEN}"


def test_before_an_answer_nothing_is_known(backend: str) -> None:
    """Every trainer is listed from the beginning, in order."""

    async def watching(poller: TimingPoller) -> dict[str, TrainerTiming]:
        return poller.latest()

    with silent_server() as url:
        latest = polling(backend, {"b": url, "a": url}, watching)
    assert list(latest.items()) == [("b", TrainerTiming()), ("a", TrainerTiming())]


def test_answers_are_renewed_over_one_connection(backend: str, server: TimingServer) -> None:
    """About every interval; the age falls back when one comes."""

    async def watching(poller: TimingPoller) -> None:
        await eventually(lambda: len(server.requests) >= 4)

    polling(backend, {"a": server.url}, watching)
    assert len({request.connection for request in server.requests}) == 1


def test_dead_trainers_delay_no_other(
    backend: str, server: TimingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is gone and many more that accept and say nothing, without end: the one that is
    well is polled on and on."""
    monkeypatch.setattr(_poller, "POLL_TIMEOUT", math.inf)

    async def watching(poller: TimingPoller) -> dict[str, TrainerTiming]:
        await eventually(lambda: len(server.requests) >= 5)
        await until(poller, "gone", failing(1))
        return poller.latest()

    with silent_server() as url:
        silent = {f"silent{number}": url for number in range(120)}
        latest = polling(backend, {"gone": unused_url(), **silent, "a": server.url}, watching)
    assert latest["a"].consecutive_failures == 0
    assert least_waiting(latest) == "a"


def test_a_trainer_that_does_not_answer_in_time_has_failed(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is the poller's own."""
    monkeypatch.setattr(_poller, "POLL_TIMEOUT", 0.05)

    async def watching(poller: TimingPoller) -> TrainerTiming:
        return await until(poller, "a", failing(1))

    with silent_server() as url:
        known = polling(backend, {"a": url}, watching)
    assert known.error is not None
    assert "did not answer within 0.05 s" in known.error


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(b"<html>"), "is not JSON"),
        (ok({}), "has no phases"),
        (ok({"phases": {"a.queue_wait": {}}}), "has no count"),
        (Answer(b"{" + b" " * MAX_ANSWER + b"}"), "over 1048576 bytes"),
        (error(401), "refused the control plane's token"),
        (error(400, message="no such thing"), "status 400: no such thing"),
        (error(500), "status is 500"),
        (error(400, "unknown_parameter"), "knows no readers; update lilo-timing beside"),
    ],
)
def test_a_failure_is_told_and_the_answer_before_it_kept(
    backend: str, server: TimingServer, answer: Answer, said: str
) -> None:
    """With the number of failures in a row, which an answer ends; the answer's age goes on."""
    good = server.answering

    async def watching(poller: TimingPoller) -> list[TrainerTiming]:
        before = await until(poller, "a", answered)
        server.answering = lambda _: answer
        # From the first failure on no answer comes any more; up to it one was under way, maybe.
        failed = [await until(poller, "a", failing(number)) for number in (1, 2)]
        server.answering = good
        return [before, *failed, await until(poller, "a", answered)]

    before, failed_once, failed, after = polling(backend, {"a": server.url}, watching)
    assert failed.answer == failed_once.answer == before.answer
    assert failed.age_s > failed_once.age_s
    assert said in failed.error
    assert TOKEN not in failed.error
    assert failed.wait_s == before.wait_s
    assert (after.error, after.consecutive_failures) == (None, 0)


def test_an_unreachable_trainer_says_why(backend: str) -> None:
    """The operator gets the cause, which tenants do not."""

    async def watching(poller: TimingPoller) -> TrainerTiming:
        return await until(poller, "a", failing(1))

    known = polling(backend, {"a": unused_url()}, watching)
    assert known.error is not None
    assert "cannot be reached" in known.error
    assert "ConnectError" in known.error


def test_what_no_client_foresaw_ends_no_polling(backend: str, server: TimingServer) -> None:
    """A host name that cannot even be encoded fails alone."""

    async def watching(poller: TimingPoller) -> None:
        await until(poller, "bad", failing(1))
        await until(poller, "a", answered)

    polling(backend, {"bad": f"http://{'x' * 70}..y", "a": server.url}, watching)


def test_trainers_come_and_go(backend: str, server: TimingServer) -> None:
    """While it runs: an added one is polled, a removed one no longer, one that is added again
    begins anew."""

    async def watching(poller: TimingPoller) -> None:
        poller.add("b", SidecarEndpoint(server.url))
        await until(poller, "b", answered)
        assert list(poller.latest()) == ["a", "b"]
        poller.remove("a")
        poller.remove("unknown")
        assert list(poller.latest()) == ["b"]
        with timing_server(lambda _: ok(timing({}))) as other:
            poller.add("b", SidecarEndpoint(other.url))
            assert poller.latest()["b"].answer is None
            await until(poller, "b", answered)
            # What was under way to the first one arrives meanwhile.
            await eventually(lambda: len(other.requests) >= 4)
            asked = len(server.requests)
            await eventually(lambda: len(other.requests) >= 8)
            assert len(server.requests) == asked

    polling(backend, {"a": server.url}, watching)


def test_trainers_can_be_added_before_it_runs(backend: str, server: TimingServer) -> None:
    """The mapping it is given is copied."""

    async def main() -> None:
        endpoints = {"a": SidecarEndpoint(unused_url()), "b": SidecarEndpoint(server.url)}
        poller = TimingPoller(endpoints, INTERVAL)
        endpoints.clear()
        poller.remove("a")
        poller.add("c", SidecarEndpoint(server.url))
        assert list(poller.latest()) == ["b", "c"]
        with anyio.fail_after(TIMEOUT):
            async with poller:
                await until(poller, "b", answered)
                await until(poller, "c", answered)

    anyio.run(main, backend=backend)


def test_leaving_ends_everything_and_keeps_the_callers_error(
    backend: str, server: TimingServer
) -> None:
    """No task and no connection stays behind, also where the body raises."""

    class OwnError(Exception):
        pass

    async def watching(poller: TimingPoller) -> None:
        await until(poller, "a", answered)
        raise OwnError

    with silent_server() as url, pytest.raises(OwnError):
        polling(backend, {"a": server.url, "b": url}, watching)


def test_the_recent_wait_follows_two_answers(backend: str, server: TimingServer) -> None:
    """What clients waited long ago does not count against a trainer."""
    answers = iter([phase(10, 1000.0, 100.0), phase(12, 1001.0, 100.0)])
    last = phase(12, 1001.0, 100.0)
    server.answering = lambda _: ok(timing({"optim_step.queue_wait": next(answers, last)}))
    waits: list[float] = []

    async def watching(poller: TimingPoller) -> None:
        for wait_s in (100.0, 0.5, 0.0):
            known = await until(poller, "a", lambda known: known.wait_s == wait_s)  # noqa: B023
            assert known.wait_s is not None
            waits.append(known.wait_s)

    polling(backend, {"a": server.url}, watching)
    assert waits == [100.0, 0.5, 0.0]


@pytest.mark.parametrize("interval", [0, -1, float("nan"), float("inf")])
def test_an_interval_that_is_none_is_refused(interval: float) -> None:
    """At once, not in a busy loop later."""
    with pytest.raises(ValueError, match="a number of seconds above 0"):
        TimingPoller({}, interval)


def test_pauses_grow_with_failures_up_to_their_bound() -> None:
    """The interval, then 1, 2, 4, ... intervals, at most 60 s or the interval if that is longer;
    each varied so that nobody asks in step."""
    expected = {0: 5, 1: 5, 2: 10, 3: 20, 4: 40, 5: MAX_BACKOFF, 10**6: MAX_BACKOFF}
    for failures, seconds in expected.items():
        pauses = [pause(5.0, failures) for _ in range(200)]
        assert min(pauses) >= seconds * (1 - JITTER)
        assert max(pauses) <= seconds * (1 + JITTER)
        assert statistics.pstdev(pauses) > 0
    assert pause(300.0, 9) >= 300.0 * (1 - JITTER)


def test_age_is_counted_from_the_answer(backend: str, server: TimingServer) -> None:
    """On a clock that nobody sets."""

    async def watching(poller: TimingPoller) -> None:
        began = time.monotonic()
        await until(poller, "a", answered)
        server.hold()
        first = poller.latest()["a"].age_s
        await anyio.sleep(INTERVAL * 3)
        second = poller.latest()["a"].age_s
        assert first is not None
        assert second is not None
        assert first < second <= time.monotonic() - began

    polling(backend, {"a": server.url}, watching, interval=60)
