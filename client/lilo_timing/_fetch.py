"""One blocking read of a model's timing from a control plane."""

from __future__ import annotations

import binascii
import contextlib
from typing import TYPE_CHECKING, NoReturn

from ._answer import TimingAnswer, parse_answer
from ._http import (
    HEADERS,
    TIMING_PATH,
    json_object,
    quoted,
    read_bounded,
)
from ._request import API_KEY_HEADER, API_KEY_VARIABLE, TimingRequest
from ._shown import shown
from .errors import (
    BadRequestError,
    InvalidCallError,
    SlowAnswerError,
    TimingError,
    UnauthorizedError,
    UnavailableError,
    UnexpectedAnswerError,
    UnknownModelError,
)

if TYPE_CHECKING:
    import httpx


def fetch(request: TimingRequest, reader: str, ack: str | None, deadline: float) -> TimingAnswer:
    """Ask for that reader's interval, check and take apart. ``ack`` is the cursor of the last one
    that it received, ``deadline`` a time of time.monotonic. Blocks. Raises an error of `errors`."""
    import httpx

    from ._network import TimeLeft, network

    where = _where(request.base_url)
    params = {"model_id": request.model_id, "reader": reader}
    if request.reset:
        params["reset"] = "true"
    if ack is not None:
        params["ack"] = ack
    left = TimeLeft.until(deadline)
    try:
        url = httpx.URL(request.base_url + TIMING_PATH)
        if not url.host:
            raise httpx.InvalidURL("no host")
        asked = httpx.Request(
            "GET",
            url.copy_with(userinfo=b""),
            params=params,
            headers=_headers(request, url),
            extensions={"timeout": dict.fromkeys(("connect", "read", "write", "pool"), left)},
        )
        # The transport itself: a client would log the URL of every request, follow redirects and
        # look for passwords in files.
        transport = request.transport or network.transport(asked.url)
        response = transport.handle_request(asked)
        response.request = asked
        with contextlib.closing(response):
            body = read_bounded(response, deadline)
        status = response.status_code
    # `from None` where httpx's own text could repeat what was passed to it.
    except httpx.TimeoutException as error:
        raise SlowAnswerError(f"{where} did not answer within {request.timeout:g} s") from error
    except (httpx.InvalidURL, httpx.UnsupportedProtocol, UnicodeError):  # no host's name
        raise InvalidCallError(f"base_url is no URL that can be asked: {where}") from None
    except TimingError:
        raise
    except Exception as error:  # with a transport of any make, anything
        raise UnavailableError(f"{where} cannot be reached: {quoted(shown(error, 200))}") from error
    if status != 200:
        _refuse(status, body, where, request.model_id)
    return parse_answer(json_object(body))


def _headers(request: TimingRequest, url: httpx.URL) -> dict[str, str]:
    """With the key, and with name and password where the URL has them."""
    headers = dict(HEADERS)
    if request.api_key is not None:
        headers[API_KEY_HEADER] = request.api_key
    if url.userinfo:
        credentials = binascii.b2a_base64(f"{url.username}:{url.password}".encode(), newline=False)
        headers["Authorization"] = f"Basic {credentials.decode('ascii')}"
    return headers


def _refuse(status: int, body: bytes, where: str, model_id: str) -> NoReturn:
    code, said = _error(body)
    match status:
        case 400 if code == "unknown_parameter":
            raise BadRequestError(
                f"{where} does not know readers, each of which has intervals of its own ({said}); "
                "update lilo-timing in the control plane and beside the trainer"
            )
        case 400:
            raise BadRequestError(f"{where} refused the request: {said}")
        case 401 | 403:
            raise UnauthorizedError(
                f"{where} refused the API key ({status}: {said}); "
                f"set {API_KEY_VARIABLE} or pass api_key="
            )
        case 404:
            raise UnknownModelError(
                f"{where} knows no model {shown(model_id)}, or has no {TIMING_PATH}: {said}"
            )
        case 502 | 503:
            raise UnavailableError(f"{where} has no timing to give now ({status}: {said})")
        case 504:
            raise SlowAnswerError(f"{where} waited in vain for the timing: {said}")
        case _:
            raise UnexpectedAnswerError(f"{where} answered with status {status}: {said}")


def _error(body: bytes) -> tuple[object, str]:
    """Code and message of an error answer, as far as it is one of ours."""
    try:
        content = json_object(body)
    except UnexpectedAnswerError:
        content = {}
    message = content.get("message")
    return content.get("error"), quoted(message) if isinstance(message, str) else "no message"


def _where(base_url: str) -> str:
    """The base URL for messages, without a password in it and without a query."""
    scheme, _, rest = base_url.partition("://")
    return quoted(f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}")
