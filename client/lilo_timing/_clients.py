"""HTTP clients for a control plane's requests to its sidecars."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from ._http import CONNECTION_IDLE

if TYPE_CHECKING:
    import httpx


def sidecar_client() -> httpx.AsyncClient:
    """A client for requests to many sidecars. Its number of connections has no bound of its
    own, since dead sidecars would use it up for all: whoever asks bounds the requests."""
    import httpx

    limits = httpx.Limits(max_connections=None, keepalive_expiry=CONNECTION_IDLE)
    # Sidecars are on the inside: no proxy, and no credentials out of a .netrc.
    return httpx.AsyncClient(limits=limits, trust_env=False)


class ClientOfEventLoop:
    """One client for each event loop, since connections belong to one, and a process may run
    several after each other. Opened when first asked for, closed when the loop ends."""

    def __init__(self) -> None:
        from anyio.lowlevel import RunVar

        self._current: RunVar[tuple[httpx.AsyncClient, object] | None] = RunVar(
            "lilo_timing_client", None
        )

    async def get(self) -> httpx.AsyncClient:
        """The running event loop's."""
        current = self._current.get()
        if current is not None:
            return current[0]
        client = sidecar_client()
        closing = self._close_at_end(client)
        self._current.set((client, closing))
        await anext(closing)
        return client

    async def _close_at_end(self, client: httpx.AsyncClient) -> AsyncGenerator[None, None]:
        """asyncio and trio finish suspended generators when their loop ends: the only end that
        is to be seen without a lifespan."""
        try:
            yield
        finally:
            self._current.set(None)  # or the loop would be kept alive by what it keeps
            await client.aclose()
