"""What every HTTP request of this package has in common. Imports httpx only when first used."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final

from .errors import UnexpectedAnswerError

if TYPE_CHECKING:
    import httpx

TIMING_PATH: Final = "/api/v1/timing"
MAX_ANSWER: Final = 1024 * 1024
"""Bytes of an answer. A model's answer is a few kilobytes, and the largest aggregate (every
phase of every kind there is room for) stays under this."""
MAX_MODEL_ID: Final = 256
"""Characters of a model's id, as the sidecar has it."""
CONNECTION_IDLE: Final = 25.0
"""Seconds an idle connection is kept: less than the 30 s after which a sidecar closes it, so
that no request meets a connection that is just being closed."""
HEADERS: Final = {"Accept": "application/json", "Accept-Encoding": "identity"}
"""Uncompressed: an answer's size is then known before it is unpacked."""
_MAX_QUOTED: Final = 200
"""Characters of a server's message that an error of ours repeats."""


def read_bounded(response: httpx.Response, deadline: float) -> bytes:
    """The body of a streamed response. Raises `UnexpectedAnswerError` past MAX_ANSWER, and
    httpx.ReadTimeout past ``deadline`` (of time.monotonic), which is looked at after each part:
    a caller's own transport may bound no more than each wait."""
    import httpx

    check_encoding(response)
    body = bytearray()
    for part in response.iter_bytes():
        if time.monotonic() > deadline:
            raise httpx.ReadTimeout("the answer trickles", request=response.request)
        if len(body) + len(part) > MAX_ANSWER:
            raise _too_large()
        body += part
    return bytes(body)


async def aread_bounded(response: httpx.Response) -> bytes:
    """`read_bounded` for an asynchronous client."""
    import anyio

    check_encoding(response)
    body = bytearray()
    # Leaving the loop would leave httpx's generators suspended, about which trio warns. A
    # cancelled read ends all of them.
    with anyio.CancelScope() as reading:
        async for part in response.aiter_bytes():
            if reading.cancel_called or len(body) + len(part) > MAX_ANSWER:
                reading.cancel()
            else:
                body += part
    if reading.cancel_called:
        raise _too_large()
    return bytes(body)


def check_encoding(response: httpx.Response) -> None:
    """Refuse a compressed body: a small one may unpack to any size."""
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise UnexpectedAnswerError("the answer is compressed, which was not asked for")


def _too_large() -> UnexpectedAnswerError:
    return UnexpectedAnswerError(f"the answer is over {MAX_ANSWER} bytes")


def json_object(body: bytes) -> dict[str, Any]:
    """The JSON object of a body. Raises `UnexpectedAnswerError` for anything else."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        raise UnexpectedAnswerError("the answer is not JSON") from None
    if not isinstance(content, dict):
        raise UnexpectedAnswerError("the answer is not a JSON object")
    return content


def quoted(text: object) -> str:
    """A server's own words in one line of ours: short, and without control characters."""
    short = str(text)[:_MAX_QUOTED]
    return "".join(character if character.isprintable() else " " for character in short)
