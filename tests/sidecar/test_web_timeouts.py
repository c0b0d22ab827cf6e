"""How long the HTTP server waits for a request, and for an answer to be taken: with real sockets on
a virtual clock."""

from __future__ import annotations

import contextlib

import pytest
import trio
import trio.testing

from lilo_sidecar.web.http_connection import ANSWER_TIMEOUT, GRACEFUL_TIMEOUT, HEAD_TIMEOUT
from support.http_server import HANG, LARGE, REQUEST, Site, rest, run, status


@pytest.mark.parametrize(
    ("sent", "timeout"),
    [
        (b"", 5),
        (b"GET / HT", 5),
        (REQUEST, 30),
        (REQUEST + b"GET / HT", 5),
    ],
)
def test_idle_connection_is_closed_in_time(sent: bytes, timeout: int) -> None:
    """Whether it said nothing, half a request, or a whole one before; only the one that keeps
    its connection for the next request may take its time, and is no offender."""

    async def act(site: Site) -> None:
        async with await site.connect() as stream:
            before = trio.current_time()
            await stream.send_all(sent)
            await rest(stream)
            assert trio.current_time() - before == pytest.approx(timeout, abs=0.5)
            await trio.testing.wait_all_tasks_blocked()
            assert site.statistics.timed_out == (timeout == 5)
            assert site.statistics.connections == 0

    run(act)


def test_head_that_comes_bit_by_bit_wins_no_time() -> None:
    """The time for a head begins with its first byte, also on a connection that was answered."""

    async def act(site: Site) -> None:
        async with await site.connect() as stream:
            assert await status(stream) == b"200"
            before = trio.current_time()
            with contextlib.suppress(trio.BrokenResourceError):
                for byte in b"GET / HTTP/1.1\r\nhost: a-long-name\r\n":
                    await stream.send_all(bytes([byte]))
                    await trio.sleep(1)
            assert trio.current_time() - before == pytest.approx(HEAD_TIMEOUT, abs=2.5)
            assert site.statistics.timed_out == 1

    run(act)


def test_head_has_its_time_from_its_first_byte() -> None:
    """However long that was in coming; the connection had its time for it."""

    async def act(site: Site) -> None:
        async with await site.connect() as stream:
            await trio.sleep(HEAD_TIMEOUT - 1)
            await stream.send_all(REQUEST[:5])
            await trio.sleep(HEAD_TIMEOUT - 1)
            assert await status(stream, REQUEST[5:]) == b"200"

    run(act)


def test_work_on_an_answer_is_told_from_a_wait_for_its_reader() -> None:
    """So that producers give way to the one and not to the other."""

    async def act(site: Site) -> None:
        async with await site.connect() as idle, await site.connect() as asking:
            assert await status(idle) == b"200"
            await trio.testing.wait_all_tasks_blocked()
            assert not site.server.is_working
            await asking.send_all(HANG)
            await site.hanging.wait()
            assert site.server.is_working
        async with await site.connect() as deaf:
            await trio.testing.wait_all_tasks_blocked(0.01)
            await deaf.send_all(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n")
            await trio.testing.wait_all_tasks_blocked(0.01)
            await trio.sleep(2 * GRACEFUL_TIMEOUT)  # the one that hung is gone by then
            assert site.statistics.connections == 1
            assert not site.server.is_working

    run(act)


def test_answer_that_is_not_taken_is_given_up_on() -> None:
    """A client that never reads holds its connection for only so long."""

    async def act(site: Site) -> None:
        async with await site.connect() as stream:
            await stream.send_all(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n")
            await trio.sleep(ANSWER_TIMEOUT - 1)
            assert site.statistics.timed_out == 0
            await trio.sleep(2)
            assert site.statistics.timed_out == 1
            assert len(await rest(stream)) < LARGE

    run(act)


def test_answer_that_is_taken_slowly_arrives_whole() -> None:
    """The time is for a client that takes nothing; a large answer is no offence."""

    async def act(site: Site) -> None:
        async with await site.connect() as stream:
            await stream.send_all(b"GET /large HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            await trio.sleep(ANSWER_TIMEOUT / 2)
            assert (await rest(stream)).count(b"x") >= LARGE
            assert site.statistics.timed_out == 0

    run(act)
