"""The timing route of a control plane, in front of real HTTP servers, on asyncio and trio."""

from __future__ import annotations

import gc
import gzip
import math
import warnings
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

import anyio
import httpx
import pytest
from starlette.applications import Starlette

from lilo_timing import SidecarEndpoint, _routes, timing_routes
from lilo_timing._http import MAX_ANSWER, MAX_MODEL_ID
from lilo_timing._query import RELAYED_PARAMETERS
from support.timing_server import (
    TIMEOUT,
    Answer,
    TimingServer,
    error,
    ok,
    silent_server,
    timing,
    timing_server,
    unused_url,
)

TOKEN = "sidecar-token"
PATH = "/api/v1/timing"


@pytest.fixture(params=["asyncio", "trio"])
def backend(request: pytest.FixtureRequest) -> str:
    """Every test here runs on both."""
    return str(request.param)


Asking = Callable[[httpx.AsyncClient], Awaitable[Any]]


def with_app(
    backend: str,
    endpoints: dict[str, SidecarEndpoint | None],
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


def test_the_answer_of_the_models_sidecar_is_relayed(backend: str, server: TimingServer) -> None:
    """As it is, uncached; the sidecar gets the query and its token."""
    response = ask(backend, server.url, "model_id=m&reset=true")
    assert response.status_code == 200
    assert response.json() == timing()
    assert response.headers["content-type"] == "application/json"
    assert response.headers["cache-control"] == "no-store"
    (request,) = server.requests
    assert (request.method, request.path) == ("GET", PATH)
    assert request.query == {"model_id": "m", "reset": "true"}
    assert request.headers["authorization"] == f"Bearer {TOKEN}"


def test_each_models_own_sidecar_is_asked(backend: str, server: TimingServer) -> None:
    """Two trainers, and a name with everything in it that a URL quotes."""
    name = "t/1 ä&reset=true#"
    with timing_server(lambda _: ok({"phases": {}, "of": "other"})) as other:
        endpoints: dict[str, SidecarEndpoint | None] = {
            "m": SidecarEndpoint(server.url),
            name: SidecarEndpoint(other.url + "/"),
        }

        async def asking(client: httpx.AsyncClient) -> Any:
            return [
                (await client.get(PATH, params={"model_id": model})).json().get("of")
                for model in ("m", name)
            ]

        assert with_app(backend, endpoints, asking) == [None, "other"]
        assert other.requests[0].query == {"model_id": name}
        assert other.requests[0].path == PATH
        assert "authorization" not in server.requests[0].headers


def test_nothing_of_the_caller_goes_to_the_sidecar(backend: str, server: TimingServer) -> None:
    """Its API key above all."""
    secrets = {"X-API-Key": "tml-1", "Authorization": "Bearer tml-2", "Cookie": "a=tml-3"}
    ask(backend, server.url, headers={**secrets, "X-Other": "tml-4"})
    (request,) = server.requests
    assert "tml-" not in repr(request.headers)


def test_nothing_of_the_sidecars_headers_goes_to_the_caller(
    backend: str, server: TimingServer
) -> None:
    """A sidecar sets no cookie at a control plane."""
    server.answering = lambda _: Answer(ok(timing()).body, 200, {"Set-Cookie": "a=1", "X-B": "c"})
    response = ask(backend, server.url)
    assert not {"set-cookie", "x-b", "server"} & set(response.headers)


def test_head_resets_nothing(backend: str, server: TimingServer) -> None:
    """It is asked as HEAD, which ends no interval at the sidecar."""
    response = ask(backend, server.url, "model_id=m&reset=true", method="HEAD")
    assert response.status_code == 200
    assert [request.method for request in server.requests] == ["HEAD"]


def test_other_methods_are_refused(backend: str, server: TimingServer) -> None:
    """Reading is all there is."""
    assert ask(backend, server.url, method="POST").status_code == 405
    assert server.requests == []


@pytest.mark.parametrize(
    ("query", "outcome"),
    [
        ("", (400, "model_id_required")),
        ("reset=true", (400, "model_id_required")),
        ("model_id=", (400, "model_id_required")),
        ("model_id=*", (403, "operators_only")),
        ("model_id=%2A", (403, "operators_only")),
        ("model_id=m&rest=true", (400, "unknown_parameter")),
        ("model_id=m&model_id=other", (400, "repeated_parameter")),
        ("model_id=m&reset=true&reset=false", (400, "repeated_parameter")),
        ("model_id=%ff", (400, "bad_query")),
        ("&".join(["model_id=m"] * 17), (400, "bad_query")),
        (f"model_id={'x' * (MAX_MODEL_ID + 1)}", (400, "bad_model_id")),
        ("model_id=unknown", (404, "unknown_model")),
        (f"model_id={'x' * MAX_MODEL_ID}", (404, "unknown_model")),
        ("model_id=gone", (404, "unknown_model")),
    ],
)
def test_a_query_that_makes_no_sense_is_refused_before_any_sidecar(
    backend: str, server: TimingServer, query: str, outcome: tuple[int, str]
) -> None:
    """In JSON, with a code; the figures of all models are nobody's here; a model is unknown
    whether `engine_for` raises LookupError or returns None."""
    assert refused(ask(backend, server.url, query)) == outcome
    assert server.requests == []


def test_the_refusal_of_the_aggregate_says_whose_it_is(backend: str, server: TimingServer) -> None:
    """And what to ask instead."""
    for query in ("", "model_id=*"):
        message = ask(backend, server.url, query).json()["message"]
        assert "the operator's" in message
        assert "ask for one model" in message


def test_all_the_sidecars_parameters_are_relayed(backend: str, server: TimingServer) -> None:
    """Whether it knows them all is its own answer, and so are their values."""
    given = {"model_id": "m", "reset": "maybe", "reader": "r 1", "ack": "7"}
    assert set(given) == set(RELAYED_PARAMETERS)
    server.answering = lambda _: error(400, "bad_reset", "reset is 'maybe'")
    query = "&".join(f"{name}={quote(value)}" for name, value in given.items())
    response = ask(backend, server.url, query)
    assert refused(response) == (400, "bad_reset")
    assert server.requests[0].query == given


@pytest.mark.parametrize("status", [400, 404, 409, 429])
def test_what_the_sidecar_refuses_is_relayed(
    backend: str, server: TimingServer, status: int
) -> None:
    """Its own words about the caller's request."""
    server.answering = lambda _: error(status, "of_the_sidecar")
    assert refused(ask(backend, server.url)) == (status, "of_the_sidecar")


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_token_is_not_the_callers_fault(
    backend: str, server: TimingServer, status: int
) -> None:
    """A relayed 401 would send the caller looking for a fault in its own key."""
    server.answering = lambda _: error(status)
    response = ask(backend, server.url)
    assert refused(response) == (502, "sidecar_refused")
    assert "the control plane's token" in response.json()["message"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(b"<html>"), "is not JSON"),
        (Answer(b"[]"), "not a JSON object"),
        (Answer(b"{" + b" " * MAX_ANSWER + b"}"), "over 1048576 bytes"),
        (Answer(gzip.compress(b"{}"), 200, {"Content-Encoding": "gzip"}), "compressed"),
        (error(500), "status is 500"),
        (Answer(b"{}", 302, {"Location": "http://127.0.0.1:1/"}), "status is 302"),
        (Answer(b"<html>", 404), "is not JSON"),
    ],
)
def test_an_answer_that_is_no_timing_is_not_relayed(
    backend: str, server: TimingServer, answer: Answer, said: str
) -> None:
    """Nor read past 1 MiB."""
    server.answering = lambda _: answer
    response = ask(backend, server.url)
    assert refused(response) == (502, "bad_answer")
    assert said in response.json()["message"]


def test_an_answer_just_within_the_bound_is_relayed(backend: str, server: TimingServer) -> None:
    """1 MiB is allowed."""
    body = b"{" + b" " * (MAX_ANSWER - 2) + b"}"
    server.answering = lambda _: Answer(body)
    assert ask(backend, server.url).content == body


def test_a_sidecar_that_is_not_there_is_503(backend: str) -> None:
    """With a message that does not say where it was looked for."""
    assert refused(ask(backend, unused_url())) == (503, "sidecar_unreachable")


def test_a_slow_sidecar_is_504(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no other request waits for it."""
    monkeypatch.setattr(_routes, "RELAY_TIMEOUT", 0.05)
    with silent_server() as url:
        assert refused(ask(backend, url)) == (504, "sidecar_slow")


def test_a_trickling_sidecar_is_slow_all_the_same(
    backend: str, server: TimingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is for all of an answer, not for each of its bytes: here its end never comes."""
    monkeypatch.setattr(_routes, "RELAY_TIMEOUT", 0.2)
    server.answering = lambda _: Answer(b"{" * 10, 200, {"Content-Length": "11"})
    assert refused(ask(backend, server.url)) == (504, "sidecar_slow")


def test_connections_are_reused(backend: str, server: TimingServer) -> None:
    """One for many requests, one after the other."""

    async def asking(client: httpx.AsyncClient) -> None:
        for _ in range(3):
            await client.get(PATH, params={"model_id": "m"})

    with_app(backend, {"m": SidecarEndpoint(server.url)}, asking)
    assert len({request.connection for request in server.requests}) == 1


def with_own_client(
    backend: str, endpoints: dict[str, SidecarEndpoint | None], asking: Asking
) -> Any:
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
        assert with_own_client(backend, {**endpoints}, asking) == 200


def test_the_routes_own_connections_end_with_the_event_loop(
    backend: str, server: TimingServer
) -> None:
    """They are reused until then, each event loop has its own, and none is left open behind."""

    async def asking(client: httpx.AsyncClient) -> None:
        for _ in range(2):
            assert (await client.get(PATH, params={"model_id": "m"})).status_code == 200

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            with_own_client(backend, {"m": SidecarEndpoint(server.url)}, asking)
            server.wait_for_end(server.requests[-1].connection)
        gc.collect()
    assert [str(warning.message) for warning in caught] == []
    first, second, third, fourth = (request.connection for request in server.requests)
    assert first == second != third == fourth
    assert [left for left in gc.get_objects() if type(left) is httpx.AsyncClient] == []


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
