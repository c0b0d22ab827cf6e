"""The time for an answer is for all of it, however it comes; and what else the network is asked."""

from __future__ import annotations

import base64
import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lilo_timing import (
    SlowAnswerError,
    UnavailableError,
    _network,
    critical_path_metrics,
    log_critical_path,
)
from support.logs import logged
from support.timely import assert_within
from support.timing_server import (
    TIMEOUT,
    TimingServer,
    error,
    speaking_server,
    timing_server,
    unused_url,
)

ALLOWED = 0.2
PATIENCE = 5 * ALLOWED
"""Far less than what each of these servers goes on for."""
PACE = ALLOWED / 4
"""Seconds between two bytes of a server that trickles: no wait of its client's is long."""
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"


def trickling(beginning: bytes, again: bytes, pace: float) -> Callable[[socket.socket], None]:
    """Says something again and again until the client leaves, or for long."""

    def speak(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(beginning)
        until, pacing = time.monotonic() + TIMEOUT, threading.Event()
        while time.monotonic() < until:
            connection.sendall(again)
            pacing.wait(pace)

    return speak


@pytest.mark.parametrize(
    ("beginning", "again", "pace"),
    [
        (b"", b"", PACE),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n", PACE),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100, 0.0),
        (b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n", PACE),
        (b"HTTP/1.1 200 OK\r\nX-A:", b"b", PACE),
        (_HEAD, b" ", PACE),
        (_HEAD + b" ", b"", PACE),
    ],
    ids=["silence", "interim", "interim flood", "headers", "one header", "body", "stalled body"],
)
def test_no_way_of_answering_takes_longer(beginning: bytes, again: bytes, pace: float) -> None:
    """One thread makes all reports of a process, so one server must not keep it."""
    with speaking_server(trickling(beginning, again, pace)) as url:

        def ask() -> None:
            with pytest.raises(SlowAnswerError, match=r"did not answer within 0\.2 s"):
                critical_path_metrics("m", base_url=url, timeout=ALLOWED)

        assert_within(PATIENCE, ask, least=ALLOWED)


def test_a_stalled_body_has_no_second_timeout() -> None:
    """Its last wait ends with the time for all of it, not one timeout after its last byte."""

    def speak(connection: socket.socket) -> None:
        connection.recv(65536)
        threading.Event().wait(1.0)
        connection.sendall(_HEAD + b" ")
        connection.recv(1)

    with speaking_server(speak) as url:

        def ask() -> None:
            with pytest.raises(SlowAnswerError):
                critical_path_metrics("m", base_url=url, timeout=1.2)

        assert_within(2.0, ask)


@contextlib.contextmanager
def full_listener() -> Iterator[int]:
    """The port of a listener at every address of this machine that takes no connection more."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("0.0.0.0", 0))
        listener.listen(0)
        port = int(listener.getsockname()[1])
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.1", port))
        yield port


@pytest.fixture
def several(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a host with the addresses 127.0.0.3, .2 and .1, in that order."""
    look_up = socket.getaddrinfo

    def looked_up(host: str, *arguments: Any, **kwargs: Any) -> list[Any]:
        if host != "several":
            return look_up(host, *arguments, **kwargs)
        hosts = (f"127.0.0.{number}" for number in (3, 2, 1))
        return [found for each in hosts for found in look_up(each, *arguments, **kwargs)]

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    return "several"


def test_several_addresses_share_the_time(several: str) -> None:
    """Of a host, none of which takes the connection."""
    with full_listener() as port:

        def ask() -> None:
            with pytest.raises(SlowAnswerError):
                critical_path_metrics("m", base_url=f"http://{several}:{port}", timeout=ALLOWED)

        assert_within(2 * ALLOWED, ask)


def test_any_address_of_a_host_will_do(server: TimingServer, several: str) -> None:
    """The first two refuse."""
    url = server.url.replace("127.0.0.1", several)
    assert critical_path_metrics("m", base_url=url)["lilo/delivery.applied"] == 3
    with pytest.raises(UnavailableError, match="refused"):
        critical_path_metrics("m", base_url=unused_url().replace("127.0.0.1", several))


def test_a_proxy_of_the_environment_is_used(
    server: TimingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for the hosts that are excepted."""
    monkeypatch.setattr(_network.network, "_proxies", None)
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("http_proxy", server.url.removeprefix("http://"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    critical_path_metrics("m", base_url="http://control-plane.invalid/a")
    assert server.requests[0].headers["host"] == "control-plane.invalid"
    with timing_server() as direct:
        critical_path_metrics("m", base_url=direct.url)
        assert len(direct.requests) == 1


def test_a_name_and_password_in_the_url_go_into_the_header(
    server: TimingServer, caplog: pytest.LogCaptureFixture
) -> None:
    """And nowhere else: not into a log of any level, whether it went well or not. A report is no
    line in the log of whoever logs at INFO."""
    caplog.set_level(logging.DEBUG)
    urls = [
        url.replace("http://", "http://us%20er:hunter%2F2@") for url in (server.url, unused_url())
    ]
    critical_path_metrics("m", base_url=urls[0])
    server.answering = lambda _: error(403)
    for url in urls:
        log_critical_path("m", base_url=url, background=False)
    expected = base64.b64encode(b"us er:hunter/2").decode()
    assert [request.headers["authorization"] for request in server.requests] == [
        f"Basic {expected}"
    ] * 2
    assert "127.0.0.1" in caplog.text
    for secret in ("hunter", expected):
        assert secret not in caplog.text
    assert {r.name for r in logged(caplog) if r.levelno >= logging.INFO} == {"lilo_timing"}


def test_a_report_at_info_says_nothing(
    server: TimingServer, caplog: pytest.LogCaptureFixture
) -> None:
    """A line per step would be httpx's own."""
    caplog.set_level(logging.INFO)
    critical_path_metrics("m", base_url=server.url)
    assert logged(caplog) == []
