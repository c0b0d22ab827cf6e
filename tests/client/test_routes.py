"""The timing route of a control plane, in front of real HTTP servers, on asyncio and trio."""

from __future__ import annotations

import gzip
from typing import Any

import httpx
import pytest

from lilo_timing import SidecarEndpoint, _routes
from lilo_timing._http import MAX_ANSWER
from support.control_plane import PATH, TOKEN, ask, refused, with_app
from support.timing_readers import ReaderModel
from support.timing_server import (
    Answer,
    Request,
    TimingServer,
    error,
    ok,
    silent_server,
    timing,
    timing_server,
    unused_url,
)


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


def test_a_readers_interval_is_handed_on_unchanged(backend: str, server: TimingServer) -> None:
    """To the last byte; the reader and what it acknowledges reach the sidecar as they are."""
    model = ReaderModel()
    model.record()
    given: list[Answer] = []

    def answering(request: Request) -> Answer:
        given.append(model.answer(request))
        return given[-1]

    server.answering = answering
    first = ask(backend, server.url, "model_id=m&reset=true&reader=loop-1")
    cursor = first.json()["interval"]["cursor"]
    second = ask(backend, server.url, f"model_id=m&reset=true&reader=loop-1&ack={cursor}")
    assert [first.content, second.content] == [answer.body for answer in given]
    assert second.json()["interval"]["from"] == cursor
    assert server.requests[1].query["ack"] == cursor


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
