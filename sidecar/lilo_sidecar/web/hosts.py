"""Without a token, requests of this machine's own programs only, and not of its browser's pages."""

from __future__ import annotations

import ipaddress
import re
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from .answers import error_answer
from .bearer import LAST, OPEN_PATHS

_HOST: Final = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9.-]+))(?::[0-9]{1,5})?", re.ASCII)
"""``uri-host [":" port]`` of RFC 9110, as far as an address or ``localhost`` can have it."""
_OWN_SITES: Final = frozenset({b"same-origin", b"none"})
"""What `Sec-Fetch-Site` says of a page that this server gave, and of an address that was typed."""


class LoopbackHosts:
    """Lets a request through when its Host is a loopback address or ``localhost``, and no page of
    another server makes it; 403 otherwise.

    A sidecar without a token listens on loopback, which any page in a browser on the machine can
    send requests to: it could end intervals with them, and by a name of its own that it lets
    resolve to 127.0.0.1 (DNS rebinding) even read the answers. Such a request names that host, or
    tells by `Sec-Fetch-Site` or `Origin` where the page is from. One without any of these is no
    browser's.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        objection = None
        if scope["type"] != "lifespan" and scope.get("path") not in OPEN_PATHS:
            objection = _objection(scope)
        if objection is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            code, message = objection
            await error_answer(403, code, message, headers=LAST)(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})


def _objection(scope: Scope) -> tuple[str, str] | None:
    """The code and the message of a refusal."""
    hosts = _values(scope, b"host")
    if not all(map(_is_loopback, hosts)):
        return (
            "foreign_host",
            "without a token this sidecar answers for 127.0.0.1, ::1 and localhost only; "
            "ask for one of these, or start it with --token-file",
        )
    own = {b"http://" + host.lower() for host in hosts}
    if not all(origin.lower() in own for origin in _values(scope, b"origin")) or not all(
        site.lower() in _OWN_SITES for site in _values(scope, b"sec-fetch-site")
    ):
        return (
            "foreign_page",
            "without a token this sidecar answers no page of another server; "
            "open its own address instead, or start it with --token-file",
        )
    return None


def _values(scope: Scope, wanted: bytes) -> list[bytes]:
    return [value for name, value in scope["headers"] if name == wanted]


def _is_loopback(host: bytes) -> bool:
    found = _HOST.fullmatch(host.decode("latin-1").lower())
    if found is None:
        return False
    bracketed, name = found.groups()
    try:
        address = ipaddress.ip_address(bracketed or name)
    except ValueError:
        return bracketed is None and name == "localhost"
    # Brackets are for IPv6, and only there.
    return address.is_loopback and (address.version == 6) == (bracketed is not None)
