"""A constant answer from the sidecar's own HTTP server: ``python -m bench.constant FILE``.

Prints its URL and serves what is in the file at every path until its stdin ends.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lilo_sidecar.intake.listening import http_listener
from lilo_sidecar.web.hosts import LoopbackHosts
from lilo_sidecar.web.server import HttpServer, url_of


async def serve(body: bytes) -> None:
    """Until stdin ends."""

    async def constant(_: Request) -> Response:
        return Response(body, media_type="application/json")

    async def stdin_ended() -> None:
        await trio.lowlevel.wait_readable(0)
        os.read(0, 1)

    app = LoopbackHosts(Starlette(routes=[Route("/api/v1/timing", constant)]))
    with http_listener(socket.AF_INET, ("127.0.0.1", 0)) as listener:
        print(url_of(listener), flush=True)
        await HttpServer(app).run(listener, stdin_ended)


if __name__ == "__main__":
    trio.run(serve, Path(sys.argv[1]).read_bytes())
