"""The HTTP server: hypercorn's protocol around the application, on a socket of our own."""

from __future__ import annotations

import ipaddress
import logging
import socket
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Final

import trio
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import LifespanState
from hypercorn.utils import wrap_app
from starlette.types import ASGIApp

MAX_CONNECTIONS: Final = 128
"""Readers at once: pollers, a scraper, people. One over it is closed and may try again."""
GRACEFUL_TIMEOUT: Final = 1.0
"""Seconds for answers under way, at shutdown and when the client stops sending."""
KEEP_ALIVE_TIMEOUT: Final = 30.0
"""Seconds that a connection may idle, or take to send a request's head. A poller's interval is
shorter, so that it never finds its connection closed under it."""
MAX_HEAD: Final = 16 * 1024
"""Bytes of a request's line and headers."""
_BACKLOG: Final = 128

_log = logging.getLogger("lilo_sidecar.http")


def url_of(listener: socket.socket) -> str:
    """Where this machine reaches the socket: of a wildcard address, loopback."""
    host, port = listener.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = "127.0.0.1" if listener.family == socket.AF_INET else "::1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class HttpServer:
    """Serves an ASGI application without a lifespan.

    hypercorn's own `serve` runs all connections in one nursery, where a request that its
    protocol code trips over (it does over some malformed upgrades, before any token is looked
    at) ends the server. Here a connection's fault ends that connection.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._config = Config()
        self._config.keep_alive_timeout = KEEP_ALIVE_TIMEOUT
        self._config.h11_max_incomplete_size = MAX_HEAD
        self._config.include_server_header = False
        self._config.errorlog = _log
        self._app = wrap_app(app, 0, "asgi")  # type: ignore[arg-type]  # its own ASGI types
        self._context = WorkerContext(None)
        self._connections = 0

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
            await self._context.terminated.set()  # idle connections close now
            connections.cancel_scope.deadline = trio.current_time() + GRACEFUL_TIMEOUT

    async def _serve(self, stream: trio.SocketStream) -> None:
        if self._connections >= MAX_CONNECTIONS:
            await trio.aclose_forcefully(stream)
            return
        self._connections += 1
        try:
            await _Connection(
                self._app,
                self._config,
                self._context,
                LifespanState({}),
                stream,  # type: ignore[arg-type]  # annotated as TLS only; plain is told apart
            ).run()
        except* Exception as group:  # noqa: BLE001 - no connection may end the server
            reasons = ", ".join(sorted({repr(error)[:200] for error in _leaves(group)}))
            _log.warning("an HTTP connection was closed by a fault in its protocol: %s", reasons)
        finally:
            self._connections -= 1
            await trio.aclose_forcefully(stream)


class _Connection(TCPServer):
    """Ends soon after its client is gone. hypercorn would keep a connection that never sent
    anything (a probe of the port), or one upgraded to HTTP/2, until the idle timeout."""

    async def run(self) -> None:
        with trio.CancelScope() as self._scope:
            await super().run()

    async def _read_data(self) -> None:
        await super()._read_data()
        await self.idle_task.stop()
        # A client that only closed its sending half still gets its answer.
        self._scope.deadline = trio.current_time() + GRACEFUL_TIMEOUT


def _leaves(group: BaseExceptionGroup[Exception]) -> Iterator[Exception]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
