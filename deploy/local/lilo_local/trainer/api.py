"""The engine over HTTP. Its one client is the control plane, which knows the tenants."""

from __future__ import annotations

import hmac
from typing import Any, Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ..engine import Engine, EngineError
from ..web import Problem, error_handlers, json_object, problem_response

MAX_MODEL_ID: Final = 128
"""Characters."""
MAX_WAIT: Final = 20.0
"""Seconds that a poll may stay open for its result."""


class BearerToken:
    """Middleware: every request must carry ``Authorization: Bearer <token>``."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, self._expected):
                problem = Problem(401, "unauthorized", "a bearer token of this trainer is needed")
                await problem_response(problem)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def trainer_app(engine: Engine, token: str) -> Starlette:
    """``POST /models``, ``POST /models/ID/operations``, ``DELETE /models/ID`` and
    ``GET /futures/REQUEST_ID?wait=SECONDS``."""

    async def create(request: Request) -> JSONResponse:
        body = await json_object(request)
        model_id = body.get("model_id")
        if not isinstance(model_id, str) or not 1 <= len(model_id) <= MAX_MODEL_ID:
            raise Problem(400, "bad_request", f"model_id must have 1 to {MAX_MODEL_ID} characters")
        future = engine.create_model(model_id, body.get("spec"))
        return JSONResponse(future.to_json(), status_code=202)

    async def submit(request: Request) -> JSONResponse:
        body = await json_object(request)
        future = engine.submit(
            request.path_params["model_id"],
            body.get("seq_id"),
            body.get("kind"),
            body.get("payload", {}),
        )
        return JSONResponse(future.to_json(), status_code=202)

    async def poll(request: Request) -> JSONResponse:
        future = engine.future(request.path_params["request_id"])
        await future.wait(_seconds(request.query_params.get("wait", "0")))
        return JSONResponse(future.to_json())

    async def unload(request: Request) -> Response:
        await engine.unload(request.path_params["model_id"])
        return Response(status_code=204)

    async def on_engine_error(_: Request, error: Exception) -> Response:
        assert isinstance(error, EngineError)
        return problem_response(Problem(error.status, error.code, str(error)))

    handlers: dict[Any, Any] = {**error_handlers(), EngineError: on_engine_error}
    return Starlette(
        routes=[
            Route("/models", create, methods=["POST"]),
            Route("/models/{model_id}", unload, methods=["DELETE"]),
            Route("/models/{model_id}/operations", submit, methods=["POST"]),
            Route("/futures/{request_id}", poll),
        ],
        middleware=[Middleware(BearerToken, token=token)],
        exception_handlers=handlers,
    )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MAX_WAIT:
        raise Problem(400, "bad_request", f"wait must be from 0 to {MAX_WAIT} seconds")
    return seconds
