"""A control plane's timing route in an application, asked without a network in between."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
import httpx
from starlette.applications import Starlette

from lilo_timing import SidecarEndpoint, timing_routes
from support.timing_server import TIMEOUT

PATH = "/api/v1/timing"
TOKEN = "sidecar-token"
Asking = Callable[[httpx.AsyncClient], Awaitable[Any]]
Endpoints = Mapping[str, SidecarEndpoint | None]


def with_app(
    backend: str,
    endpoints: Endpoints,
    asking: Asking,
) -> Any:
    """Run ``asking`` against an application with the route, which knows these models."""

    async def engine_for(model_id: str) -> SidecarEndpoint | None:
        return endpoints[model_id]

    async def main() -> Any:
        async with httpx.AsyncClient(trust_env=False) as sidecars:
            app = Starlette(routes=timing_routes(engine_for, client=sidecars))
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://plane") as client:
                with anyio.fail_after(TIMEOUT):
                    return await asking(client)

    return anyio.run(main, backend=backend)


def with_own_client(backend: str, endpoints: Endpoints, asking: Asking) -> Any:
    """`with_app`, where the routes have no client but their own."""

    async def engine_for(model_id: str) -> SidecarEndpoint | None:
        return endpoints[model_id]

    async def main() -> Any:
        transport = httpx.ASGITransport(app=Starlette(routes=timing_routes(engine_for)))
        async with httpx.AsyncClient(
            transport=transport, base_url="http://plane", timeout=None
        ) as client:
            with anyio.fail_after(TIMEOUT):
                return await asking(client)

    return anyio.run(main, backend=backend)


def ask(
    backend: str,
    url: str,
    query: str = "model_id=m",
    method: str = "GET",
    headers: dict[str, str] | None = None,
) -> httpx.Response:
    """One request about the model "m", whose sidecar is at ``url``."""

    async def asking(client: httpx.AsyncClient) -> httpx.Response:
        return await client.request(method, f"{PATH}?{query}", headers=headers)

    response = with_app(backend, {"m": SidecarEndpoint(url, TOKEN), "gone": None}, asking)
    assert isinstance(response, httpx.Response)
    assert TOKEN not in response.text
    assert url not in response.text
    return response


def refused(response: httpx.Response) -> tuple[int, str]:
    """Status and code of an error answer of the usual form."""
    assert response.headers["content-type"] == "application/json"
    assert response.headers["cache-control"] == "no-store"
    content = response.json()
    assert set(content) == {"error", "message"}
    return response.status_code, content["error"]
