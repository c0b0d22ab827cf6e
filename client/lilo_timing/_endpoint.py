"""Where a trainer's sidecar is, for a control plane."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ._http import CONNECTION_IDLE, HEADERS, TIMING_PATH, is_header_value

if TYPE_CHECKING:
    import httpx


@dataclass(frozen=True, slots=True)
class SidecarEndpoint:
    """A sidecar's HTTP address, as it prints it when it is ready, and its token if it has one.
    The token is in no repr. Raises ValueError for what no request could be made of."""

    url: str
    token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise ValueError(f"url is {self.url!r:.200}; it begins with http:// or https://")
        if self.token is not None and not is_header_value(self.token):
            raise ValueError("token has characters that an HTTP header cannot carry, or none")

    @property
    def timing_url(self) -> str:
        """Where the timing is asked for."""
        return self.url.rstrip("/") + TIMING_PATH

    @property
    def headers(self) -> dict[str, str]:
        """All that a sidecar is told: nothing of whoever asks."""
        if self.token is None:
            return dict(HEADERS)
        return {**HEADERS, "Authorization": f"Bearer {self.token}"}


def sidecar_client() -> httpx.AsyncClient:
    """A client for requests to many sidecars. Its number of connections has no bound of its
    own, since dead sidecars would use it up for all: whoever asks bounds the requests."""
    import httpx

    limits = httpx.Limits(max_connections=None, keepalive_expiry=CONNECTION_IDLE)
    # Sidecars are on the inside: no proxy, and no credentials out of a .netrc.
    return httpx.AsyncClient(limits=limits, trust_env=False)
