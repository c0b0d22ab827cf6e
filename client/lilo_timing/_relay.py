"""One request of a control plane to a sidecar, and what its caller gets to see of the answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ._endpoint import SidecarEndpoint
from ._http import aread_bounded, json_object
from .errors import UnexpectedAnswerError

if TYPE_CHECKING:
    import httpx

RELAY_TIMEOUT: Final = 5.0
"""Seconds for all of a sidecar's answer, which takes milliseconds: less than the 10 s that a
training loop waits by default, so that it is told why."""


@dataclass(frozen=True, slots=True)
class Relayed:
    """An answer to hand on. ``body`` is JSON."""

    status: int
    body: bytes


class RelayError(Exception):
    """Answered with ``status``, ``code`` and the message."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


async def relay(
    client: httpx.AsyncClient,
    endpoint: SidecarEndpoint,
    method: str,
    params: Mapping[str, str],
    timeout: float,
) -> Relayed:
    """Ask the sidecar: ``method`` is GET or HEAD, ``timeout`` is in seconds for all of it.

    The caller's headers, its API key among them, go no further than here; the sidecar's go no
    further, either. Raises `RelayError`, whose message names neither its address nor the token.
    """
    import anyio
    import httpx

    try:
        with anyio.fail_after(timeout):
            async with client.stream(
                method,
                endpoint.timing_url,
                params=params,
                headers=endpoint.headers,
                timeout=None,  # `fail_after` is for all of it; httpx's is for each wait
                follow_redirects=False,
            ) as response:
                body = await aread_bounded(response)
                status = response.status_code
    except TimeoutError:
        raise RelayError(
            504, "sidecar_slow", f"the sidecar did not answer within {timeout:g} s"
        ) from None
    except UnexpectedAnswerError as error:
        raise _bad_answer(error) from None
    except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:
        raise RelayError(
            503, "sidecar_unreachable", "the sidecar cannot be reached; try again later"
        ) from error
    _check(status, body, method)
    return Relayed(status, body)


def _check(status: int, body: bytes, method: str) -> None:
    """That the answer is the caller's business: its figures, or its own mistake."""
    if status in (401, 403):
        raise RelayError(
            502,
            "sidecar_refused",
            "the sidecar refused the control plane's token; the operator can mend that",
        )
    if status != 200 and not 400 <= status < 500:
        raise _bad_answer(f"its status is {status}")
    if method != "HEAD":
        try:
            json_object(body)
        except UnexpectedAnswerError as error:
            raise _bad_answer(error) from None


def _bad_answer(why: object) -> RelayError:
    return RelayError(502, "bad_answer", f"the sidecar gave no timing: {why}")
