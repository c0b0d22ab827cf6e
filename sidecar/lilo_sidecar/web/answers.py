"""JSON answers of the HTTP interface, errors included."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

NEVER_STORED: Final = {"Cache-Control": "no-store"}
"""An answer is true once; one with ``reset=true`` must never come from a cache."""


def json_answer(
    content: object, status: int = HTTPStatus.OK, headers: Mapping[str, str] = NEVER_STORED
) -> Response:
    """An answer with that content, of plain types."""
    # A copy: what orjson returns is cut off a buffer of up to twice the size, and while a client
    # has not taken it, the next buffer does not fit into what is left of that one.
    text = bytes(memoryview(json_text(content)))
    return json_text_answer(text, status, headers)


def json_text(content: object) -> bytes:
    """Plain types as JSON."""
    try:
        return orjson.dumps(content)
    except TypeError:  # a number over 64 bits: a sum of what a hostile producer claims
        return json.dumps(content, ensure_ascii=False, allow_nan=False).encode()


def json_text_answer(
    text: bytes, status: int = HTTPStatus.OK, headers: Mapping[str, str] = NEVER_STORED
) -> Response:
    """An answer with what is JSON already."""
    return Response(text, status, headers, media_type="application/json")


def error_answer(
    status: int, code: str, message: str, headers: Mapping[str, str] | None = None
) -> Response:
    """``code`` is a short stable word for programs, ``message`` is for people."""
    headers = {**NEVER_STORED, **(headers or {})}
    return json_answer({"error": code, "message": message}, status, headers)


class BadRequestError(Exception):
    """A query that is answered with 400. ``code`` and the message go into the answer."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


async def on_bad_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, BadRequestError)  # noqa: S101 - it is registered for this class
    return error_answer(400, error.code, str(error))


async def on_http_exception(request: Request, error: Exception) -> Response:
    """What the router raises: no such path, no such method."""
    assert isinstance(error, HTTPException)  # noqa: S101 - it is registered for this class
    code = HTTPStatus(error.status_code).phrase.lower().replace(" ", "_")
    match error.status_code:
        case 404:
            message = "no such path; /openapi.json lists them"
        case 405:
            message = f"{request.method[:16]} is not allowed here; use GET"
        case _:
            message = error.detail
    return error_answer(error.status_code, code, message, error.headers)


async def on_fault(request: Request, error: Exception) -> Response:
    """A fault of the sidecar's own; the log has the traceback."""
    return error_answer(500, "internal_error", "the sidecar failed to answer; its log says why")
