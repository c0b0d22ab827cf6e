"""Who is asking: API keys, and what a caller may see."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from ..web import Problem, problem_response

OPEN_PATHS = frozenset({"/healthz"})
"""Need no key."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A tenant, or the operator, who may see everybody's models."""

    tenant: str
    operator: bool = False

    def may_see(self, owner: str | None) -> bool:
        """Whether a model of ``owner`` (None: nobody's) exists for this caller."""
        return owner is not None and (self.operator or owner == self.tenant)


class ApiKeys:
    """Middleware: finds the caller by the key in ``X-API-Key``, for `caller_of` to return."""

    def __init__(self, app: ASGIApp, callers: Mapping[str, Caller]) -> None:
        self._app = app
        # By digest: how long a look-up takes then tells nothing about a key.
        self._callers = {_digest(key): caller for key, caller in callers.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            key = HTTPConnection(scope).headers.get("x-api-key", "")
            caller = self._callers.get(_digest(key))
            if caller is None:
                problem = Problem(401, "unauthorized", "send a valid API key as X-API-Key")
                await problem_response(problem)(scope, receive, send)
                return
            scope.setdefault("state", {})["caller"] = caller
        await self._app(scope, receive, send)


def caller_of(connection: HTTPConnection) -> Caller:
    """The caller that `ApiKeys` found."""
    caller: Caller = connection.state.caller
    return caller


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
