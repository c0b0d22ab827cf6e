"""Serving Starlette applications on trio, the same way in every process of the deployment."""

from __future__ import annotations

import json
import signal
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

MAX_BODY: Final = 8 * 1024 * 1024
"""Bytes of a request: a hundred thousand tokens with their targets take about one MiB as JSON."""
GRACEFUL_TIMEOUT: Final = 1.0
"""Seconds that open requests get at shutdown. Whoever polls for a result is answered at once when
the engine stops, so nothing needs longer."""


class Problem(Exception):  # noqa: N818 - named for RFC 9457's problem details
    """Ends a request with an error: ``{"error": code, "message": message}``."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


async def json_object(request: Request) -> dict[str, Any]:
    """The body as a JSON object. Raises `Problem` if it is none, or too large."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            raise Problem(413, "too_large", f"a request body holds at most {MAX_BODY} bytes")
    try:
        value = json.loads(body or b"{}")
    except (ValueError, RecursionError) as error:
        raise Problem(400, "bad_request", f"the body is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise Problem(400, "bad_request", "the body must be a JSON object")
    return value


def error_handlers() -> dict[Any, Callable[[Request, Exception], Awaitable[Response]]]:
    """For `Starlette(exception_handlers=...)`: every error leaves as JSON."""

    async def on_problem(_: Request, error: Exception) -> Response:
        assert isinstance(error, Problem)
        return problem_response(error)

    async def on_http(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "http_error")
        return problem_response(Problem(error.status_code, code, error.detail))

    async def on_failure(_: Request, error: Exception) -> Response:
        return problem_response(Problem(500, "internal", "this failed; the server's log says how"))

    return {Problem: on_problem, HTTPException: on_http, Exception: on_failure}


def problem_response(problem: Problem) -> JSONResponse:
    """The error as it goes over the wire."""
    return JSONResponse(
        {"error": problem.code, "message": problem.message}, status_code=problem.status
    )


async def serve_app(
    app: Starlette,
    bind: str,
    stop: trio.Event,
    *,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve ``app`` at ``bind`` (HOST:PORT, port 0 picks one) until ``stop``. As a nursery's
    ``start`` it reports the base URL once it listens."""
    config = Config()
    config.bind = [bind]
    config.graceful_timeout = GRACEFUL_TIMEOUT
    config.loglevel = "WARNING"  # to stderr, with the traceback of what answers 500
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(
            partial(serve, app, config, shutdown_trigger=stop.wait)  # type: ignore[arg-type]
        )
        task_status.started(url)


async def stop_on_signal(
    stop: trio.Event, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Set ``stop`` at the first SIGTERM or SIGINT. Start it before anything takes long."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for _ in signals:
            stop.set()


def print_ready(event: str, url: str) -> None:
    """One line on stdout for whoever started this process and waits for it."""
    print(json.dumps({"event": event, "http": url}), flush=True)
