"""Whoever answers `lilo-sidecar check`, however badly: it ends in time, and says what it met."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from lilo_sidecar import asking
from lilo_sidecar.asking import Asker, AskError, Trouble
from support.checking import check
from support.timing_server import TIMEOUT, Answer, speaking_server, timing_server
from support.unreachable import in_time


class Trickle:
    """Speaks a head that never ends, a byte at a time, until the other side has hung up."""

    def __init__(self) -> None:
        self.left = threading.Event()
        """The other side has hung up."""
        self.asked = b""

    def __call__(self, connection: socket.socket) -> None:
        self.asked = connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nServer: ")
        with contextlib.suppress(OSError):
            while not self.left.wait(0.01):
                connection.sendall(b"x")
        self.left.set()


def test_head_that_trickles_for_ever_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time, and the answer does not: that is one finding of its own."""
    monkeypatch.setattr(asking, "TIMEOUT", 0.2)
    trickle = Trickle()
    with speaking_server(trickle) as url:
        try:
            with in_time():
                done = check("--url", url)
            assert (done.status, done.codes) == (2, ["slow_http"])
        finally:
            trickle.left.set()


@contextlib.contextmanager
def given_up(trickle: Trickle) -> Iterator[None]:
    """By an asker that is still there, and hangs up all the same."""
    with speaking_server(trickle) as url, Asker(url, None) as asker:
        try:
            with in_time(), pytest.raises(AskError) as caught:
                asker.get("/healthz")
            assert caught.value.trouble is Trouble.SLOW
            yield
            assert trickle.left.wait(TIMEOUT)
        finally:
            trickle.left.set()


def test_who_trickles_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing goes on reading after the answer was given up."""
    monkeypatch.setattr(asking, "TIMEOUT", 1.0)  # by then it has connected, on any machine
    trickle = Trickle()
    with given_up(trickle):
        pass
    assert trickle.asked.startswith(b"GET /healthz ")


def test_nothing_is_asked_once_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the name of a host takes all of the time, who is then connected would be read from for
    as long as it speaks."""
    monkeypatch.setattr(asking, "TIMEOUT", 0.2)
    may_resolve = threading.Event()
    resolve = socket.getaddrinfo

    def slow(*arguments: Any, **options: Any) -> Any:
        may_resolve.wait(TIMEOUT)
        return resolve(*arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    trickle = Trickle()
    with given_up(trickle):
        may_resolve.set()
    assert trickle.asked == b""


@pytest.mark.parametrize("coding", ["gzip", "identity", "x-unheard-of"])
def test_packed_answer_is_refused_unread(coding: str) -> None:
    """None was asked for, and a few bytes of one may unpack to any number: the finding says that
    it is packed, however that is called."""
    body = gzip.compress(json.dumps({"status": "ok"}).encode())
    answer = Answer(body, headers={"Content-Encoding": coding})
    with timing_server(lambda _: answer) as server:
        done = check("--url", server.url)
        assert (done.status, done.codes) == (2, ["not_a_sidecar"])
        assert "the answer is packed, which was not asked for" in done.says("not_a_sidecar")
        assert server.requests[0].headers["accept-encoding"] == "identity"
