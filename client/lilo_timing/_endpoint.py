"""Where a trainer's sidecar is, for a control plane."""

from __future__ import annotations

from dataclasses import dataclass, field

from ._http import HEADERS, TIMING_PATH
from ._request import is_header_value


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
