"""The connections of a control plane's timing route to its sidecars, on asyncio and trio."""

from __future__ import annotations

import gc
import math
import warnings

import anyio
import httpx
import pytest

from lilo_timing import SidecarEndpoint, _routes
from support.control_plane import PATH, TOKEN, with_app, with_own_client
from support.timing_server import TimingServer, silent_server


def test_connections_are_reused(backend: str, server: TimingServer) -> None:
    """One for many requests, one after the other."""

    async def asking(client: httpx.AsyncClient) -> None:
        for _ in range(3):
            await client.get(PATH, params={"model_id": "m"})

    with_app(backend, {"m": SidecarEndpoint(server.url)}, asking)
    assert len({request.connection for request in server.requests}) == 1


def test_a_dead_sidecar_holds_up_no_other(
    backend: str, server: TimingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More requests than a pool has connections by default wait for one sidecar without end, and
    another is asked all the same."""
    monkeypatch.setattr(_routes, "RELAY_TIMEOUT", math.inf)

    async def asking(client: httpx.AsyncClient) -> int:
        async with anyio.create_task_group() as tasks:
            for _ in range(120):
                tasks.start_soon(client.get, f"{PATH}?model_id=dead")
            await anyio.wait_all_tasks_blocked()
            response = await client.get(PATH, params={"model_id": "m"})
            tasks.cancel_scope.cancel()
        return response.status_code

    with silent_server() as url:
        endpoints = {"dead": SidecarEndpoint(url), "m": SidecarEndpoint(server.url)}
        assert with_own_client(backend, endpoints, asking) == 200


def test_the_routes_own_connections_end_with_the_event_loop(
    backend: str, server: TimingServer
) -> None:
    """They are reused until then, each event loop has its own, and none is left open behind."""

    async def asking(client: httpx.AsyncClient) -> None:
        for _ in range(2):
            assert (await client.get(PATH, params={"model_id": "m"})).status_code == 200

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()  # what other tests left
    others = {id(left) for left in gc.get_objects() if type(left) is httpx.AsyncClient}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            with_own_client(backend, {"m": SidecarEndpoint(server.url)}, asking)
            server.wait_for_end(server.requests[-1].connection)
        gc.collect()
    assert [str(warning.message) for warning in caught] == []
    first, second, third, fourth = (request.connection for request in server.requests)
    assert first == second != third == fourth
    left = {id(one) for one in gc.get_objects() if type(one) is httpx.AsyncClient}
    assert left <= others


def test_an_endpoint_shows_no_token_and_takes_no_nonsense() -> None:
    """Checked where it is configured; no message repeats the token."""
    endpoint = SidecarEndpoint("http://a:1/", TOKEN)
    assert TOKEN not in repr(endpoint)
    assert endpoint.timing_url == f"http://a:1{PATH}"
    with pytest.raises(ValueError, match="begins with http://"):
        SidecarEndpoint("a:1")
    for token in ("", " x", "a\nb", "ä"):
        with pytest.raises(ValueError, match="token has characters") as caught:
            SidecarEndpoint("http://a", token)
        assert not token.strip() or token not in str(caught.value)
