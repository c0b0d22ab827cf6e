"""The HTTP server: accepts readers' connections, and bounds their number and their faults."""

from __future__ import annotations

import ipaddress
import logging
import socket
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import trio
from hypercorn.trio.worker_context import WorkerContext
from starlette.types import ASGIApp

from .faults import described
from .http1 import http_config
from .http_connection import GRACEFUL_TIMEOUT, HttpConnection

__all__ = ["GRACEFUL_TIMEOUT", "MAX_CONNECTIONS", "HttpServer", "HttpStatistics", "url_of"]

MAX_CONNECTIONS: Final = 128
"""Readers at once: pollers, a scraper, people. For one over it the one that is idle longest makes
way; it is closed, and may try again, where all are being answered."""
_BACKLOG: Final = 128

_log = logging.getLogger("lilo_sidecar.http")


def url_of(listener: socket.socket) -> str:
    """Where this machine reaches the socket: of a wildcard address, loopback."""
    host, port = listener.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = "127.0.0.1" if listener.family == socket.AF_INET else "::1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@dataclass(frozen=True, slots=True)
class HttpStatistics:
    """The HTTP server's own counts, since the daemon started."""

    connections: int
    """Open now."""
    refused: int
    """Turned away because all others were being answered."""
    evicted: int
    """Closed while idle, to make way for another."""
    timed_out: int
    """Closed for taking too long over a request, or over taking its answer."""
    faults: int
    """Closed by a fault of the sidecar's own; the log says where."""


class HttpServer:
    """Serves an ASGI application without a lifespan.

    hypercorn's own `serve` runs all connections in one nursery, where a request that its
    protocol code trips over ends the server. Here a connection's fault ends that connection.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._config = http_config()
        self._context = WorkerContext(None)
        self._connections: dict[HttpConnection, None] = {}
        """In the order they were accepted."""
        self._refused = 0
        self._evicted = 0
        self._timed_out = 0
        self._faults = 0

    def statistics(self) -> HttpStatistics:
        """The counts by now."""
        return HttpStatistics(
            connections=len(self._connections),
            refused=self._refused,
            evicted=self._evicted,
            timed_out=self._timed_out,
            faults=self._faults,
        )

    async def run(
        self,
        listener: socket.socket,
        stop: Callable[[], Awaitable[object]],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until ``stop`` returns, then finish within GRACEFUL_TIMEOUT seconds. Takes the
        bound socket over. Reports as started once it listens."""
        listener.listen(_BACKLOG)
        listener.setblocking(False)
        async with trio.open_nursery() as connections:
            async with (
                trio.SocketListener(trio.socket.from_stdlib_socket(listener)) as accepting,
                trio.open_nursery() as nursery,
            ):
                serve = partial(trio.serve_listeners, handler_nursery=connections)
                await nursery.start(serve, self._serve, [accepting])
                task_status.started()
                await stop()
                nursery.cancel_scope.cancel()
            await self._context.terminated.set()  # the answers under way are the last ones
            for connection in self._connections:
                if connection.quiet_since is not None:
                    connection.close()
            connections.cancel_scope.deadline = trio.current_time() + GRACEFUL_TIMEOUT

    async def _serve(self, stream: trio.SocketStream) -> None:
        if not self._find_room():
            self._refused += 1
            await trio.aclose_forcefully(stream)
            return
        connection = HttpConnection(self._app, self._config, self._context, stream)
        self._connections[connection] = None
        try:
            await connection.run()
        except* Exception as group:  # noqa: BLE001 - no connection may end the server
            self._faults += 1
            reasons = ", ".join(sorted({described(error) for error in _leaves(group)}))
            _log.error("an HTTP connection was closed by a fault in its protocol: %s", reasons)
        finally:
            self._connections.pop(connection, None)
            self._timed_out += connection.timed_out
            await trio.aclose_forcefully(stream)

    def _find_room(self) -> bool:
        """Whether there is a place for one more, if need be that of the one idle longest."""
        if len(self._connections) < MAX_CONNECTIONS:
            return True
        idle = [
            (connection.quiet_since, connection)
            for connection in self._connections
            if connection.quiet_since is not None
        ]
        if not idle:
            return False
        _, longest = min(idle, key=lambda entry: entry[0])
        del self._connections[longest]
        self._evicted += 1
        longest.close()
        return True


def _leaves(group: BaseExceptionGroup[Exception]) -> Iterator[Exception]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
