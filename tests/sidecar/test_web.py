"""The HTTP server's bounds, with real sockets on a virtual clock."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing
from starlette.types import Receive, Scope, Send

from lilo_sidecar.listening import http_listener
from lilo_sidecar.web import (
    GRACEFUL_TIMEOUT,
    KEEP_ALIVE_TIMEOUT,
    MAX_CONNECTIONS,
    MAX_HEAD,
    HttpServer,
)

REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


class Site:
    """A running server; ``/hang`` is never answered."""

    def __init__(self, address: tuple[str, int], stop: trio.Event) -> None:
        self.address = address
        self.stop = stop
        self.hanging = trio.Event()

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/hang":
            self.hanging.set()
            await trio.sleep_forever()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def connect(self) -> trio.SocketStream:
        return await trio.open_tcp_stream(*self.address)


def run(act: Callable[[Site], Awaitable[None]]) -> float:
    """Run ``act`` beside a server, then stop that; the seconds that stopping took."""

    async def main() -> float:
        listener = http_listener(socket.AF_INET, ("127.0.0.1", 0))
        site = Site(listener.getsockname(), trio.Event())
        async with trio.open_nursery() as nursery:
            await nursery.start(HttpServer(site.app).run, listener, site.stop.wait)
            await act(site)
            before = trio.current_time()
            site.stop.set()
        return trio.current_time() - before

    return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0.05))


async def status(stream: trio.SocketStream, request: bytes = REQUEST) -> bytes:
    """Send a request; the status of the answer, empty if the connection is closed instead."""
    await stream.send_all(request)
    head = bytes(await stream.receive_some(65536))
    return head[9:12]


@pytest.mark.parametrize("sent", [b"", b"GET / HT", REQUEST])
def test_idle_connection_is_closed_in_time(sent: bytes) -> None:
    """Whether it said nothing, half a request or a whole one before."""

    async def act(site: Site) -> None:
        async with await site.connect() as stream:
            await stream.send_all(sent)
            if sent == REQUEST:
                await stream.receive_some(65536)
            before = trio.current_time()
            while await stream.receive_some(65536):
                pass
            assert trio.current_time() - before == pytest.approx(KEEP_ALIVE_TIMEOUT, abs=1)

    run(act)


def test_head_of_a_request_is_bounded() -> None:
    """One that is longer than anybody needs is refused without being kept."""

    async def act(site: Site) -> None:
        async with await site.connect() as stream:
            filler = b"GET / HTTP/1.1\r\nhost: x\r\na: " + b"x" * MAX_HEAD
            assert await status(stream, filler) == b"431"
        async with await site.connect() as stream:
            filler = b"GET / HTTP/1.1\r\nhost: x\r\na: " + b"x" * (MAX_HEAD // 2)
            assert await status(stream, filler + b"\r\n\r\n") == b"200"

    run(act)


def test_connections_are_bounded() -> None:
    """One over the bound is closed at once; there is room again when one leaves."""

    async def act(site: Site) -> None:
        streams = [await site.connect() for _ in range(MAX_CONNECTIONS)]
        assert [await status(stream) for stream in streams] == [b"200"] * MAX_CONNECTIONS
        async with await site.connect() as over:
            with contextlib.suppress(trio.BrokenResourceError):  # closed before it was sent
                assert await status(over) == b""
        await streams[0].aclose()
        await trio.testing.wait_all_tasks_blocked(0.01)
        async with await site.connect() as late:
            assert await status(late) == b"200"
        for stream in streams:
            await stream.aclose()

    run(act)


def test_probe_that_says_nothing_is_let_go_of_at_once() -> None:
    """However many look whether the port is open, there is room for who wants an answer."""

    async def act(site: Site) -> None:
        for _ in range(MAX_CONNECTIONS + 1):
            await (await site.connect()).aclose()
            await trio.testing.wait_all_tasks_blocked()
        async with await site.connect() as stream:
            assert await status(stream) == b"200"

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
