"""Without a token, requests of this machine's own programs only, and not of its browser's pages."""

from __future__ import annotations

import ipaddress

from starlette.types import ASGIApp, Receive, Scope, Send

from .answers import error_answer
from .bearer import OPEN_PATHS


class LoopbackHosts:
    """Lets a request through when its Host is a loopback address or ``localhost``; 403 otherwise.

    A sidecar without a token listens on loopback, which any page in a browser on the machine can
    send requests to: a name of its own that it lets resolve to 127.0.0.1 (DNS rebinding) would
    even let it read the answers. Such a request names that host. One without a Host is no
    browser's.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or scope.get("path") in OPEN_PATHS or _is_local(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            answer = error_answer(
                403,
                "foreign_host",
                "without a token this sidecar answers for 127.0.0.1, ::1 and localhost only; "
                "ask for one of these, or start it with --token-file",
            )
            await answer(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})


def _is_local(scope: Scope) -> bool:
    hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
    return all(map(_is_loopback, hosts))


def _is_loopback(host: str) -> bool:
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
