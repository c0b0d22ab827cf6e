"""The HTTP server: accepts readers' connections, and bounds their number and their faults."""

from __future__ import annotations

import ipaddress
import logging
import socket
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Final

import trio
from hypercorn.trio.worker_context import WorkerContext
from starlette.types import ASGIApp

from ..faults import described
from ..intake.listening import BACKLOG, EXHAUSTED
from ..intake.throttle import Throttle
from .http1 import http_config
from .http_connection import GRACEFUL_TIMEOUT, HttpConnection
from .untaken import Untaken

__all__ = [
    "GRACEFUL_TIMEOUT",
    "MAX_CONNECTIONS",
    "PATIENCE",
    "HttpServer",
    "HttpStatistics",
    "url_of",
]

MAX_CONNECTIONS: Final = 128
"""Readers at once: pollers, a scraper, people. For one over it the one that is idle longest makes
way; where all are being answered, the one that has not taken its answer for longest, if that is
more than a moment; then the one that asks without a pause; where there is none, the one over is
closed, and may try again."""
PATIENCE: Final = 1.0
"""Seconds that a client may be answered in one go and keep its place when it is wanted, without the
time that it waits for others. An answer is made at once: it is its requests that are many."""
_ACCEPT_PAUSE: Final = 0.1
"""Seconds until the next try when the process has run out of descriptors or memory."""
_LOOK_INTERVAL: Final = 10.0
"""Seconds after which, if nobody comes, the log is told what was left out of it."""

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
    """Closed to make way for another, while idle or slow to take an answer."""
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
        self.untaken = Untaken()
        self._connections: dict[HttpConnection, None] = {}
        """In the order they were accepted."""
        self._throttle = Throttle(_log)
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

    @property
    def is_working(self) -> bool:
        """Whether somebody waits for an answer, and not the other way round."""
        return not self.untaken.is_full and any(each.is_worked_on for each in self._connections)

    async def run(
        self,
        listener: socket.socket,
        stop: Callable[[], Awaitable[object]],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until ``stop`` returns, then finish within GRACEFUL_TIMEOUT seconds. Takes the
        bound socket over. Reports as started once it listens."""
        listener.listen(BACKLOG)
        listener.setblocking(False)
        async with trio.open_nursery() as connections:
            async with (
                trio.SocketListener(trio.socket.from_stdlib_socket(listener)) as accepting,
                trio.open_nursery() as nursery,
            ):
                nursery.start_soon(self._accept, accepting, connections)
                task_status.started()
                await stop()
                nursery.cancel_scope.cancel()
            await self._context.terminated.set()  # the answers under way are the last ones
            for connection in self._connections:
                if connection.quiet_since is not None:
                    connection.close()
            connections.cancel_scope.deadline = trio.current_time() + GRACEFUL_TIMEOUT
        self._throttle.close()

    async def _accept(self, listener: trio.SocketListener, connections: trio.Nursery) -> None:
        """trio's own `serve_listeners` logs a traceback at every try without a descriptor."""
        while True:
            self._throttle.settle()
            with trio.move_on_after(_LOOK_INTERVAL):
                try:
                    stream = await listener.accept()
                except OSError as error:
                    if error.errno not in EXHAUSTED:
                        raise
                    self._throttle.tell(
                        *(logging.WARNING, "accept", "cannot accept readers for now: %s", error),
                        lines=1,
                    )
                    await trio.sleep(_ACCEPT_PAUSE)
                else:
                    connections.start_soon(self._serve, stream)

    async def _serve(self, stream: trio.SocketStream) -> None:
        if not self._find_room():
            self._refused += 1
            await trio.aclose_forcefully(stream)
            return
        connection = HttpConnection(
            *(self._app, self._config, self._context, stream, self._throttle),
            untaken=self.untaken,
            evict=self._evict,
        )
        self._connections[connection] = None
        try:
            await connection.run()
        except* Exception as group:  # noqa: BLE001 - no connection may end the server
            self._faults += 1
            reasons = ", ".join(sorted({described(error) for error in _leaves(group)}))
            line = "an HTTP connection was closed by a fault in its protocol: %s"
            self._throttle.tell(logging.ERROR, "fault", line, reasons)
        finally:
            self._connections.pop(connection, None)
            self._timed_out += connection.timed_out
            await trio.aclose_forcefully(stream)

    def _find_room(self) -> bool:
        """Whether there is a place for one more, if need be another one's."""
        if len(self._connections) < MAX_CONNECTIONS:
            return True
        if leaving := self._idlest():
            self._evict(leaving)
            return True
        self.untaken.give_up_oldest()
        if len(self._connections) < MAX_CONNECTIONS:
            return True
        leaving = self._slowest() or self._idlest(fresh=True)
        if leaving is not None:
            self._evict(leaving)
        return leaving is not None

    def _evict(self, connection: HttpConnection) -> None:
        if connection in self._connections:  # and not on its way out
            del self._connections[connection]
            self._evicted += 1
            connection.close()

    def _idlest(self, *, fresh: bool = False) -> HttpConnection | None:
        """Of those that have nothing to be answered; of those that have only just come, if need
        be: their requests may be on the way."""
        idle = [
            (connection.quiet_since, connection)
            for connection in self._connections
            if connection.quiet_since is not None and (fresh or not connection.is_fresh)
        ]
        return min(idle, key=lambda entry: entry[0])[1] if idle else None

    def _slowest(self) -> HttpConnection | None:
        """Of those being answered, the one whose answers take longest, if that is its own doing."""
        longest = min(self._connections, key=lambda connection: connection.busy_since)
        return longest if trio.current_time() - longest.busy_since > PATIENCE else None


def _leaves(group: BaseExceptionGroup[Exception]) -> Iterator[Exception]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
