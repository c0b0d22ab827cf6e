"""`critical_path_metrics`: one read, its metrics or a clear error."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

import lilo_timing
from lilo_timing import SlowAnswerError, critical_path_metrics
from lilo_timing._http import MAX_ANSWER
from support.timing_server import (
    Answer,
    TimingServer,
    error,
    ok,
    silent_server,
    timing,
    timing_server,
    unused_url,
)

SECRET = "tml-secret-key"


def test_metrics_are_plain_numbers_by_name(server: TimingServer) -> None:
    """What comes back fits any logger."""
    metrics = critical_path_metrics("m", base_url=server.url)
    assert metrics == {
        "lilo/forward_backward.execute.count": 1,
        "lilo/forward_backward.execute.total_s": 2.0,
        "lilo/forward_backward.execute.mean_s": 2.0,
        "lilo/forward_backward.execute.max_s": 2.0,
        "lilo/forward_backward.execute.mean_batch": 1.0,
        "lilo/trainer.backend_ready_s": 1.5,
        "lilo/delivery.applied": 3,
        "lilo/delivery.dropped": 0,
    }


@pytest.mark.parametrize("suffix", ["", "/", "/services/one", "/services/one/"])
def test_the_request_is_the_contracts(server: TimingServer, suffix: str) -> None:
    """The path goes under the base URL; the model and the reset in the query, the key in its
    header; the interval ends by default."""
    critical_path_metrics("a b/c:d", base_url=server.url + suffix, api_key=SECRET)
    request = server.requests[0]
    assert request.method == "GET"
    assert request.path == suffix.rstrip("/") + "/api/v1/timing"
    reader = request.query["reader"]
    assert request.query == {"model_id": "a b/c:d", "reset": "true", "reader": reader}
    assert request.headers["x-api-key"] == SECRET
    assert request.headers["accept-encoding"] == "identity"


def test_an_interval_can_be_left_open(server: TimingServer) -> None:
    """`reset=False` asks for nothing to end; without a key no header is sent."""
    critical_path_metrics("m", base_url=server.url, reset=False, reader="r")
    assert server.requests[0].query == {"model_id": "m", "reader": "r"}
    assert "x-api-key" not in server.requests[0].headers


def test_url_and_key_come_from_the_environment(
    server: TimingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`TINKER_BASE_URL` and `TINKER_API_KEY` are the defaults, also for what is empty; arguments
    go first."""
    monkeypatch.setenv("TINKER_BASE_URL", server.url)
    monkeypatch.setenv("TINKER_API_KEY", SECRET)
    critical_path_metrics("m", base_url="", api_key="")
    critical_path_metrics("m", api_key="other")
    keys = [request.headers["x-api-key"] for request in server.requests]
    assert keys == [SECRET, "other"]


def test_one_connection_serves_many_reads(server: TimingServer) -> None:
    """A step's report costs no new connection."""
    for _ in range(3):
        critical_path_metrics("m", base_url=server.url)
    assert len({request.connection for request in server.requests}) == 1


def test_a_transport_takes_the_networks_place_and_stays_open() -> None:
    """A caller's transport is used, and is the caller's to close."""

    class Transport(httpx.BaseTransport):
        closed = False

        def handle_request(self, request: httpx.Request) -> httpx.Response:
            assert str(request.url).startswith("http://nowhere/api/v1/timing?")
            return httpx.Response(200, json=timing({}))

        def close(self) -> None:
            self.closed = True

    transport = Transport()
    for _ in range(2):
        metrics = critical_path_metrics("m", base_url="http://nowhere", transport=transport)
        assert metrics["lilo/delivery.applied"] == 3
    assert not transport.closed


def test_without_a_base_url_the_error_says_what_to_set() -> None:
    """The commonest mistake says how to mend it."""
    with pytest.raises(lilo_timing.MissingBaseUrlError, match="set TINKER_BASE_URL"):
        critical_path_metrics("m")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"model_id": ""}, "pass the model's id"),
        ({"model_id": None}, "pass the model's id"),
        ({"model_id": "\ud800"}, "pass the model's id"),
        ({"base_url": "localhost:1"}, "does not begin with http://"),
        ({"base_url": "http://"}, "no URL that can be asked"),
        ({"base_url": "http://a:b"}, "no URL that can be asked"),
        ({"base_url": "http://a..b"}, "no URL that can be asked"),
        ({"base_url": "http://a\nb"}, "no URL that can be asked"),
        ({"api_key": "two\nlines"}, "cannot carry"),
        ({"api_key": "kéy"}, "cannot carry"),
        ({"api_key": " key"}, "cannot carry"),
        ({"timeout": 0}, "timeout is 0"),
        ({"timeout": float("nan")}, "timeout is nan"),
        ({"timeout": None}, "timeout is None"),
        ({"prefix": ""}, "pass a name such as 'lilo'"),
        ({"prefix": "a*"}, "pass a name such as 'lilo'"),
    ],
)
def test_arguments_that_cannot_work_are_refused(arguments: dict[str, Any], said: str) -> None:
    """Before anything is sent; the message says which one and what to pass."""
    with pytest.raises(lilo_timing.InvalidCallError) as caught:
        critical_path_metrics(**{"model_id": "m", "base_url": "http://nowhere", **arguments})
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "kind", "said"),
    [
        (400, lilo_timing.BadRequestError, "refused the request: the message"),
        (401, lilo_timing.UnauthorizedError, "set TINKER_API_KEY or pass api_key="),
        (403, lilo_timing.UnauthorizedError, "403: the message"),
        (404, lilo_timing.UnknownModelError, "knows no model 'm'"),
        (502, lilo_timing.UnavailableError, "502: the message"),
        (503, lilo_timing.UnavailableError, "503: the message"),
        (504, lilo_timing.SlowAnswerError, "the message"),
        (302, lilo_timing.UnexpectedAnswerError, "status 302"),
        (500, lilo_timing.UnexpectedAnswerError, "status 500"),
        (204, lilo_timing.UnexpectedAnswerError, "status 204"),
    ],
)
def test_a_refusal_becomes_its_error(
    server: TimingServer, status: int, kind: type[Exception], said: str
) -> None:
    """Each has a type to catch, the server's own words, and where it came from; the key is in
    none."""
    server.answering = lambda _: (
        Answer(b"", 204) if status == 204 else error(status, message="the message")
    )
    with pytest.raises(lilo_timing.TimingError) as caught:
        critical_path_metrics("m", base_url=server.url, api_key=SECRET)
    assert type(caught.value) is kind
    assert said in str(caught.value)
    assert server.url in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_redirect_is_not_followed(server: TimingServer) -> None:
    """The key goes to nobody but the base URL."""
    with timing_server() as other:
        server.answering = lambda _: Answer(b"", 307, {"Location": other.url})
        with pytest.raises(lilo_timing.UnexpectedAnswerError):
            critical_path_metrics("m", base_url=server.url, api_key=SECRET)
        assert other.requests == []


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(b"<html>"), "is not JSON"),
        (Answer(b"[" * 100_000), "is not JSON"),
        (Answer(b"[]"), "not a JSON object"),
        (ok({}), "has no phases"),
        (Answer(b"{" + b" " * MAX_ANSWER + b"}"), "over 1048576 bytes"),
        (
            Answer(gzip.compress(json.dumps(timing()).encode()), 200, {"Content-Encoding": "gzip"}),
            "compressed",
        ),
    ],
)
def test_an_answer_that_is_no_timing_is_refused(
    server: TimingServer, answer: Answer, said: str
) -> None:
    """Whatever the server sends ends in our own error, and takes no more than 1 MiB."""
    server.answering = lambda _: answer
    with pytest.raises(lilo_timing.UnexpectedAnswerError) as caught:
        critical_path_metrics("m", base_url=server.url)
    assert said in str(caught.value)


def test_an_answer_just_within_the_bound_is_read(server: TimingServer) -> None:
    """1 MiB is allowed."""
    body = json.dumps(timing()).encode()
    server.answering = lambda _: Answer(body + b" " * (MAX_ANSWER - len(body)))
    assert critical_path_metrics("m", base_url=server.url)["lilo/delivery.applied"] == 3


def test_nobody_listening_is_unavailable() -> None:
    """The message names the place, without a password in it."""
    url = unused_url().replace("http://", f"http://user:{SECRET}@")
    with pytest.raises(lilo_timing.UnavailableError) as caught:
        critical_path_metrics("m", base_url=url)
    assert "127.0.0.1" in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_server_that_says_nothing_is_slow() -> None:
    """The timeout is kept, and named."""
    with silent_server() as url, pytest.raises(lilo_timing.SlowAnswerError, match=r"0\.05 s"):
        critical_path_metrics("m", base_url=url, timeout=0.05)


def test_a_servers_words_are_repeated_short_and_in_one_line(server: TimingServer) -> None:
    """A hostile message does not fill or forge the caller's log."""
    server.answering = lambda _: error(400, message="a\nb\x1b" + "c" * 10_000)
    with pytest.raises(lilo_timing.BadRequestError) as caught:
        critical_path_metrics("m", base_url=server.url)
    assert "a b ccc" in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_request_shows_no_key() -> None:
    """Not even in a repr that ends up in somebody's log."""
    from lilo_timing._request import timing_request

    request = timing_request(
        "m", base_url="http://a", api_key=SECRET, reset=True, timeout=1, transport=None
    )
    assert SECRET not in repr(request)


class Trickle(httpx.BaseTransport, httpx.SyncByteStream):
    """Answers with a body that comes byte by byte and never ends."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, stream=self)

    def __iter__(self) -> Iterator[bytes]:
        while True:
            yield b" "


def test_answer_that_trickles_is_given_up() -> None:
    """The time is for all of the answer, however busily it comes."""
    with pytest.raises(SlowAnswerError, match=r"did not answer within 0\.05 s"):
        critical_path_metrics("m", base_url="http://127.0.0.1:1", timeout=0.05, transport=Trickle())
