"""What a caller asks for, checked. Loaded with the package, so it imports next to nothing."""

from __future__ import annotations

import math
import os
import threading
from typing import TYPE_CHECKING, Final, NamedTuple

from ._readers import checked_reader
from ._shown import shown
from .errors import InvalidCallError, MissingBaseUrlError

if TYPE_CHECKING:
    import httpx

BASE_URL_VARIABLE: Final = "TINKER_BASE_URL"
API_KEY_VARIABLE: Final = "TINKER_API_KEY"
API_KEY_HEADER: Final = "X-API-Key"


class TimingRequest(NamedTuple):
    """What to ask whom. Make one with `timing_request`, which checks."""

    model_id: str
    base_url: str
    """There may be a password in it."""
    api_key: str | None
    reset: bool
    timeout: float
    """Seconds for all of an answer, from connecting to its last byte, however it comes (only the
    look-up of a host's name is not counted in; and a ``transport`` of the caller's is told, but
    keeps to it as it likes before the first byte of the body)."""
    transport: httpx.BaseTransport | None
    reader: str | None = None
    """Whose interval, if the caller named one."""

    def __repr__(self) -> str:
        """Without what may be secret."""
        return f"TimingRequest(model_id={self.model_id!r}, reader={self.reader!r})"


def timing_request(
    model_id: str,
    *,
    base_url: str | None,
    api_key: str | None,
    reset: bool,
    timeout: float,
    transport: httpx.BaseTransport | None,
    reader: str | None = None,
) -> TimingRequest:
    """Fill in the environment's base URL and key. No I/O. Raises `InvalidCallError`."""
    if not isinstance(model_id, str) or not model_id or not _is_text(model_id):
        raise InvalidCallError(f"model_id is {shown(model_id)}; pass the model's id, a string")
    base_url = base_url or os.environ.get(BASE_URL_VARIABLE)
    if not base_url:
        raise MissingBaseUrlError(
            "there is no base URL to read the timing from; "
            f"set {BASE_URL_VARIABLE} or pass base_url="
        )
    if not isinstance(base_url, str) or not base_url.startswith(("http://", "https://")):
        raise InvalidCallError("base_url does not begin with http:// or https://")
    if "?" in base_url or "#" in base_url:
        raise InvalidCallError("base_url has a query or a fragment; pass the address alone")
    api_key = api_key or os.environ.get(API_KEY_VARIABLE) or None
    if api_key is not None and not is_header_value(api_key):
        raise InvalidCallError("api_key has characters that an HTTP header cannot carry")
    if (
        not isinstance(timeout, (int, float))
        or not 0 < timeout <= threading.TIMEOUT_MAX
        or math.isnan(timeout)
    ):
        raise InvalidCallError(f"timeout is {shown(timeout)}; pass seconds, more than 0")
    return TimingRequest(
        model_id,
        base_url.rstrip("/"),
        api_key,
        bool(reset),
        float(timeout),
        transport,
        checked_reader(reader),
    )


def _is_text(model_id: str) -> bool:
    """Whether it can be sent: a lone half of a surrogate pair cannot."""
    try:
        model_id.encode()
    except UnicodeError:
        return False
    return True


def is_header_value(text: object) -> bool:
    """Whether an HTTP header can carry it. Checked before any library sees it, since their
    errors repeat what they refuse, and this may be a secret."""
    return (
        isinstance(text, str)
        and text.isascii()
        and text.isprintable()
        and bool(text)
        and text == text.strip()
    )
