"""How the HTTP server ends a connection, and ends itself: with real sockets on a virtual clock."""

from __future__ import annotations

import socket

import pytest
import trio
import trio.testing

from lilo_sidecar.web.http_connection import GRACEFUL_TIMEOUT
from support.http_server import HANG, REQUEST, Site, rest, run


def test_what_follows_the_last_request_does_not_hold_the_connection() -> None:
    """The answer arrives whole, and the connection ends."""

    async def act(site: Site) -> None:
        async with await site.connect() as stream:
            last = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
            await stream.send_all(last + REQUEST)
            assert (await rest(stream)).count(b"HTTP/1.1 200 ") == 1
            await trio.sleep(GRACEFUL_TIMEOUT + 0.1)
            statistics = site.statistics
            assert (statistics.connections, statistics.faults) == (0, 0)

    run(act)


def test_client_that_stops_sending_still_gets_its_answer() -> None:
    """A half-closed connection is answered, then ended."""

    async def act(site: Site) -> None:
        async with await site.connect() as stream:
            await stream.send_all(REQUEST)
            await stream.send_eof()
            answer = b""
            while data := await stream.receive_some(65536):
                answer += bytes(data)
            assert answer.startswith(b"HTTP/1.1 200")

    run(act)


def test_client_that_stops_sending_is_not_answered_for_ever() -> None:
    """It may well be gone: there is no telling."""

    async def act(site: Site) -> None:
        async with await site.connect() as stream:
            await stream.send_all(HANG)
            await site.hanging.wait()
            await stream.send_eof()
            before = trio.current_time()
            await rest(stream)
            assert trio.current_time() - before == pytest.approx(GRACEFUL_TIMEOUT, abs=0.1)
            assert site.statistics.timed_out == 0

    run(act)


def test_stop_is_immediate_with_idle_connections() -> None:
    """Keep-alive connections are no reason to wait."""
    with socket.socket() as idle:

        async def act(site: Site) -> None:
            idle.connect(site.address)
            idle.sendall(REQUEST)
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert idle.recv(65536).startswith(b"HTTP/1.1 200")

        assert run(act) == 0


def test_stop_waits_for_an_answer_under_way_only_so_long() -> None:
    """What is not answered within the grace is cut off, and nobody new is let in meanwhile."""
    with socket.socket() as waiting:

        async def act(site: Site) -> None:
            waiting.connect(site.address)
            waiting.sendall(b"GET /hang HTTP/1.1\r\nhost: x\r\n\r\n")
            await site.hanging.wait()

        assert run(act) == pytest.approx(GRACEFUL_TIMEOUT, abs=0.01)
