"""The HTTP server: hypercorn around the application, on a socket of our own."""

from __future__ import annotations

import ipaddress
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Final

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from starlette.types import ASGIApp

GRACEFUL_TIMEOUT: Final = 1.0
"""Seconds at shutdown for answers under way."""
KEEP_ALIVE_TIMEOUT: Final = 30.0
"""Seconds that a connection may idle, or take to send a request's head. A poller's interval is
shorter, so that it never finds its connection closed under it."""


def url_of(listener: socket.socket) -> str:
    """Where this machine reaches the socket: of a wildcard address, loopback."""
    host, port = listener.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = "127.0.0.1" if listener.family == socket.AF_INET else "::1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def serve_http(
    app: ASGIApp,
    listener: socket.socket,
    stop: Callable[[], Awaitable[object]],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until ``stop`` returns, then finish within GRACEFUL_TIMEOUT seconds. Takes the
    socket over. Reports as started once it listens."""
    config = Config()
    config.bind = [f"fd://{listener.detach()}"]
    config.graceful_timeout = GRACEFUL_TIMEOUT
    config.keep_alive_timeout = KEEP_ALIVE_TIMEOUT
    config.include_server_header = False
    config.errorlog = logging.getLogger("lilo_sidecar.http")
    # It announces where it runs at INFO; the ready line does.
    config.errorlog.setLevel(logging.WARNING)
    async with trio.open_nursery() as nursery:
        await nursery.start(_serve, app, config, stop)
        task_status.started()


async def _serve(
    app: ASGIApp,
    config: Config,
    stop: Callable[[], Awaitable[object]],
    *,
    task_status: trio.TaskStatus[list[str]],
) -> None:
    await serve(app, config, shutdown_trigger=stop, mode="asgi", task_status=task_status)  # type: ignore[arg-type]
