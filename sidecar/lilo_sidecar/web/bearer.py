"""The token that a request must carry."""

from __future__ import annotations

import hmac
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from .answers import error_answer
from .assets import PATHS

OPEN_PATHS: Final = frozenset({"/healthz", *PATHS})
"""For probes, which hold no token, and for the page, which asks for it; they tell no figures."""
LAST: Final = {"Connection": "close"}
"""Whoever is turned away is not asked what else it wants."""


class BearerToken:
    """Lets a request through when it carries ``Authorization: Bearer <token>``; 401 otherwise."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode("ascii")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope["type"] == "lifespan"
            or (scope["type"] == "http" and scope["path"] in OPEN_PATHS)
            or self._admits(scope)
        ):
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            answer = error_answer(
                401,
                "unauthorized",
                "this sidecar wants its token: Authorization: Bearer <token>",
                headers={"WWW-Authenticate": "Bearer", **LAST},
            )
            await answer(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    def _admits(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(given) != 1:
            return False
        scheme, _, token = given[0].partition(b" ")
        # Constant time: how much of a guess was right does not show.
        return scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token)
