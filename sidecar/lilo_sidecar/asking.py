"""Asking a running sidecar over HTTP, from a command. Blocks; bounded in time and size."""

from __future__ import annotations

import enum
import json
import math
import os
import re
import ssl
import threading
import time
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Final

import httpx

from .shown import shown

TIMEOUT: Final = 5.0
"""Seconds for one answer, from connecting to its last byte. A sidecar takes milliseconds."""
MAX_ANSWER: Final = 32 * 1024 * 1024
"""Bytes. The largest answer of a sidecar stays well under it; something else may send anything."""
_MARGIN: Final = 0.25
"""Seconds more, so that what just fails is told as that."""
_MAX_DIGITS: Final = 40
"""A sum of what many producers claim has 25."""
_HUNG_UP: Final = "without sending"
"""What httpx says of a connection that was closed before an answer, or within one."""
_CONNECTED: Final = "http11.send_request_headers.started"
"""What httpcore calls the moment before it asks, once a connection is among those it can close."""
_ERRNO: Final = re.compile(r"^\[Errno -?\d+\] ")


class Trouble(enum.Enum):
    """Why there is no answer."""

    UNREACHABLE = "nobody answers there"
    CERTIFICATE = "its certificate is not trusted"
    PLAIN = "it speaks no TLS"
    HUNG_UP = "it hung up without a whole answer"
    SLOW = "no whole answer in time"
    FOREIGN = "whoever answers is no sidecar"
    TOKEN = "the token is missing or wrong"  # noqa: S105 - says so, is none
    HOST = "it does not answer for that host"
    MISSING = "a sidecar without such an answer"
    FAULT = "the sidecar failed"


class AskError(Exception):
    """There is no answer. The message is for people, in one line."""

    def __init__(self, trouble: Trouble, message: str) -> None:
        super().__init__(message)
        self.trouble = trouble


class Asker:
    """One sidecar at one URL. One thread."""

    def __init__(self, url: str, token: str | None) -> None:
        """``url`` is ``http://HOST:PORT``, perhaps with a path in front of the sidecar's own.
        Raises `AskError` for https where the environment's authorities cannot be read."""
        self.url = url.rstrip("/")
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        self._http = httpx.Client(
            headers=headers,
            timeout=TIMEOUT,
            trust_env=False,  # no proxy gets to see the token
            verify=_authorities() if self.url.startswith("https:") else False,
        )

    def __enter__(self) -> Asker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._http.close()

    def get(self, path: str) -> dict[str, Any]:
        """The JSON object of an answer with status 200. Raises `AskError` for all else."""
        until = time.monotonic() + TIMEOUT
        answers: SimpleQueue[tuple[int, bytes] | Exception] = SimpleQueue()

        def in_time(event: str, _: object) -> None:
            # One that is connected only after it was given up is unknown to `close`.
            if event == _CONNECTED and time.monotonic() > until:
                raise httpx.ConnectTimeout("to connect took all of the time")

        def ask() -> None:
            try:
                with self._http.stream(
                    "GET", self.url + path, extensions={"trace": in_time}
                ) as response:
                    answers.put((response.status_code, _body(response, until)))
            except Exception as error:  # noqa: BLE001 - raised below
                answers.put(error)

        # httpx bounds each wait, and no sum of them: a head may trickle for ever.
        threading.Thread(target=ask, name="lilo-asking", daemon=True).start()
        try:
            answer = answers.get(timeout=TIMEOUT + _MARGIN)
            if isinstance(answer, Exception):
                raise answer
            status, content = answer[0], _json_object(answer[1])
        except Empty:
            self.close()  # which ends the thread with the next byte
            raise AskError(Trouble.SLOW, f"no whole answer within {TIMEOUT:.0f} s") from None
        except httpx.TimeoutException:
            raise AskError(Trouble.SLOW, f"no whole answer within {TIMEOUT:.0f} s") from None
        except (httpx.ReadError, httpx.WriteError):
            raise AskError(Trouble.HUNG_UP, "it hung up without a whole answer") from None
        except (httpx.RemoteProtocolError, httpx.DecodingError) as error:
            if _HUNG_UP in str(error):
                raise AskError(Trouble.HUNG_UP, "it hung up without a whole answer") from None
            raise AskError(Trouble.FOREIGN, f"no HTTP: {shown(error)}") from None
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            refused = _tls_trouble(error)
            if refused is not None:
                raise refused from None
            said = _ERRNO.sub("", shown(error)) or type(error).__name__
            raise AskError(Trouble.UNREACHABLE, said) from None
        if status == 200 and content is not None:
            return content
        raise _refusal(status, content)


def _authorities() -> ssl.SSLContext:
    """The environment's, as the training client takes them; else the public ones."""
    try:
        return httpx.create_ssl_context()
    except OSError as error:
        named = os.environ.get("SSL_CERT_FILE", "")
        none = isinstance(error, ssl.SSLError)
        why = "no certificate is in it" if none else error.strerror or type(error).__name__
        said = f"the authorities in SSL_CERT_FILE={shown(named)} cannot be read: {why}"
        raise AskError(Trouble.CERTIFICATE, said) from None


def _tls_trouble(error: BaseException) -> AskError | None:
    """What a handshake that failed comes to; None where it was something else. The words of the
    libraries in between name sources of OpenSSL's and no reason that helps."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            reason = shown(cause.verify_message).rstrip(".")
            return AskError(Trouble.CERTIFICATE, f"its certificate is not trusted: {reason}")
        if isinstance(cause, ssl.SSLError):
            return AskError(Trouble.PLAIN, "it speaks no TLS, or none that this command does")
        cause = cause.__cause__ or cause.__context__
    return None


def _body(response: httpx.Response, until: float) -> bytes:
    body = bytearray()
    if "Content-Encoding" in response.headers:
        raise AskError(Trouble.FOREIGN, "the answer is packed, which was not asked for")
    for part in response.iter_raw():
        if time.monotonic() > until:
            raise httpx.ReadTimeout("the answer trickles")
        body += part
        if len(body) > MAX_ANSWER:
            raise AskError(Trouble.FOREIGN, f"the answer is over {MAX_ANSWER} bytes")
    return bytes(body)


def _json_object(body: bytes) -> dict[str, Any] | None:
    try:
        content = json.loads(
            body, parse_constant=_no_number, parse_float=_finite, parse_int=_integer
        )
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _no_number(text: str) -> float:
    raise ValueError("no number of JSON's")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("beyond all numbers")
    return number


def _integer(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError("beyond all counts")
    return int(text)


def _refusal(status: int, content: dict[str, Any] | None) -> AskError:
    """What an error answer comes to. All of a sidecar's have ``error`` and ``message``."""
    if content is None or not {"error", "message"} <= content.keys():
        return AskError(Trouble.FOREIGN, f"status {status}, and no JSON of a sidecar's")
    message = shown(content["message"])
    match status:
        case 401:
            return AskError(Trouble.TOKEN, message)
        case 403:
            return AskError(Trouble.HOST, message)
        case 404:
            return AskError(Trouble.MISSING, message)
        case _:
            return AskError(Trouble.FAULT, f"status {status}: {message}")
