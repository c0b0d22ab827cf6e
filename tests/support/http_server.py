"""The HTTP server with an application that is slow, hangs or fails, on a virtual clock, and what a
client sends it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Awaitable, Callable

import trio
import trio.testing
from starlette.types import Receive, Scope, Send

from lilo_sidecar.intake.listening import http_listener
from lilo_sidecar.web.server import HttpServer, HttpStatistics

REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
HANG = b"GET /hang HTTP/1.1\r\nhost: x\r\n\r\n"
LARGE = 16 * 1024 * 1024
"""Bytes: more than a connection's buffers hold."""
BODY = b"x" * LARGE
MEDIUM = 16 * 1024
MEGABYTE = 1024 * 1024
"""More than the buffers hold for a client that has made its own small."""


class Site:
    """A running server; ``/hang`` is never answered, ``/slow`` after 0.6 s, ``/large``,
    ``/megabyte`` and ``/medium`` at length, ``/fault`` not well."""

    def __init__(self, address: tuple[str, int], stop: trio.Event) -> None:
        self.address = address
        self.stop = stop
        self.server = HttpServer(self.app)
        self.hanging = trio.Event()
        self.bodies: list[bytes] = []
        """What the application was told that clients sent."""
        self.made = self.most_made = 0
        """Bytes of the answers that are made and not taken, now and at most."""

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = b""
        match scope["path"]:
            case "/hang":
                self.hanging.set()
                await trio.sleep_forever()
            case "/slow":
                await trio.sleep(0.6)
            case "/fault":
                raise RuntimeError("secret")
            case "/large":
                body = BODY
            case "/megabyte":
                body = BODY[:MEGABYTE]
            case "/medium":
                body = BODY[:MEDIUM]
            case "/body":
                self.bodies.append((await receive())["body"])
        headers = [(b"content-length", str(len(body)).encode())]
        self.made += len(body)
        self.most_made = max(self.most_made, self.made)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": body})
        finally:
            self.made -= len(body)

    async def connect(self) -> trio.SocketStream:
        return await trio.open_tcp_stream(*self.address)

    @property
    def statistics(self) -> HttpStatistics:
        return self.server.statistics()


def run(act: Callable[[Site], Awaitable[None]], clock: trio.abc.Clock | None = None) -> float:
    """Run ``act`` beside a server, then stop that; the seconds that stopping took. Without a clock
    to say otherwise time jumps on whenever nothing happens for a moment."""

    async def main() -> float:
        listener = http_listener(socket.AF_INET, ("127.0.0.1", 0))
        site = Site(listener.getsockname(), trio.Event())
        async with trio.open_nursery() as nursery:
            await nursery.start(site.server.run, listener, site.stop.wait)
            await act(site)
            before = trio.current_time()
            site.stop.set()
        return trio.current_time() - before

    return trio.run(main, clock=clock or trio.testing.MockClock(autojump_threshold=0.05))


async def rest(stream: trio.SocketStream) -> bytes:
    """What comes until the connection is closed."""
    data = bytearray()
    with contextlib.suppress(trio.BrokenResourceError):
        while part := await stream.receive_some(65536):
            data += part
    return bytes(data)


async def status(stream: trio.SocketStream, request: bytes = REQUEST) -> bytes:
    """Send a request; the status of the answer, empty if the connection is closed instead."""
    await stream.send_all(request)
    head = bytes(await stream.receive_some(65536))
    return head[9:12]
