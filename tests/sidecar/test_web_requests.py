"""Requests that are too large, of no form, many at once, or run into a fault: what the HTTP server
answers them, with real sockets on a virtual clock."""

from __future__ import annotations

import contextlib
import json

import pytest
import trio
import trio.testing

from lilo_sidecar.intake.throttle import LINES
from lilo_sidecar.web.http1 import MAX_HEAD
from lilo_sidecar.web.http_connection import GRACEFUL_TIMEOUT
from support.http_server import REQUEST, Site, rest, run, status


def test_head_of_a_request_is_bounded() -> None:
    """One that is longer than anybody needs is refused without being kept."""

    async def act(site: Site) -> None:
        async with await site.connect() as stream:
            filler = b"GET / HTTP/1.1\r\nhost: x\r\na: " + b"x" * MAX_HEAD
            await stream.send_all(filler)
            answer = await rest(stream)
            assert answer.startswith(b"HTTP/1.1 431 ")
            assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"] == "head_too_large"
        for over in (1, 2000):
            filler = b"GET / HTTP/1.1\r\nhost: x\r\na: "
            filler += b"x" * (MAX_HEAD + over - len(filler) - 4) + b"\r\n\r\n"
            async with await site.connect() as stream:
                assert await status(stream, filler) == b"431"
                await rest(stream)
            async with await site.connect() as stream:
                fits = filler.replace(b"x" * over, b"", 1)
                assert len(fits) == MAX_HEAD
                assert await status(stream, fits + REQUEST) == b"200"
        async with await site.connect() as stream:
            filler = b"GET / HTTP/1.1\r\nhost: x\r\na: " + b"x" * (MAX_HEAD // 2)
            assert await status(stream, filler + b"\r\n\r\n") == b"200"

    run(act)


def test_log_of_faults_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """However often a request runs into one, the log has some of them, and how many more."""

    async def act(site: Site) -> None:
        for _ in range(3 * LINES):
            async with await site.connect() as stream:
                assert await status(stream, b"GET /fault HTTP/1.1\r\nhost: x\r\n\r\n") == b"500"

    run(act)
    assert len(caplog.messages) == LINES + 1
    assert f"{LINES} were written, {2 * LINES} more were left out" in caplog.messages[-1]


@pytest.mark.parametrize(
    ("head", "part"),
    [
        (b"content-length: 10000000000", b"x" * 65536),
        (b"transfer-encoding: chunked", b"ffff\r\n" + b"x" * 65535 + b"\r\n"),
        (b"content-length: 100\r\nexpect: 100-continue", b"x"),
    ],
)
def test_endless_body_is_not_waited_for(head: bytes, part: bytes) -> None:
    """The request is answered as if it had none, which the client gets although it goes on
    sending; then the connection is over, and nothing of the body was kept."""

    async def act(site: Site) -> None:
        async with await site.connect() as stream:
            await stream.send_all(b"POST /body HTTP/1.1\r\nhost: x\r\n" + head + b"\r\n\r\n")
            before = trio.current_time()
            answer = b""
            while b" 200 " not in answer:
                answer += bytes(await stream.receive_some(65536))
            with contextlib.suppress(trio.BrokenResourceError):
                while True:
                    await stream.send_all(part)
                    await trio.sleep(0.3)
            # Not at once either: that would be a reset, which may overtake the answer.
            assert GRACEFUL_TIMEOUT / 2 < trio.current_time() - before < 2 * GRACEFUL_TIMEOUT
            assert site.bodies == [b""]
            assert site.statistics.connections == 0

    run(act)


def test_request_with_a_body_is_the_last_one() -> None:
    """The answer says so; a body of nothing is none."""

    async def act(site: Site) -> None:
        async with await site.connect() as stream:
            head = b"POST /body HTTP/1.1\r\nhost: x\r\ncontent-length: "
            assert await status(stream, head + b"0\r\n\r\n") == b"200"
            await stream.send_all(head + b"5\r\n\r\nGET /" + REQUEST)
            answer = await rest(stream)
            assert answer.count(b"HTTP/1.1 200 ") == 1
            assert b"connection: close\r\n" in answer
            assert site.bodies == [b"", b""]

    run(act)


@pytest.mark.parametrize(
    "offer",
    [
        b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
        b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
        b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n",
        b"connection: upgrade\r\nupgrade: h2c\r\nhttp2-settings: !!!\r\n",
    ],
)
def test_upgrades_are_declined(offer: bytes) -> None:
    """Whoever offers another protocol is answered in this one, and so is the next request."""

    async def act(site: Site) -> None:
        async with await site.connect() as stream:
            assert await status(stream, REQUEST[:-2] + offer + b"\r\n") == b"200"
            assert await status(stream) == b"200"

    run(act)


@pytest.mark.parametrize(
    "request_",
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 100,
        b"GET / HTTP/9.9\r\nhost: x\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
    ],
)
def test_what_is_no_request_is_refused_in_json(request_: bytes) -> None:
    """It is the sender's fault, says the answer, and the connection is over."""

    async def act(site: Site) -> None:
        async with await site.connect() as stream:
            await stream.send_all(request_)
            await stream.send_eof()
            head, _, body = (await rest(stream)).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 400 ")
            assert json.loads(body)["error"] == "bad_http"
            assert site.statistics.faults == 0

    run(act)


def test_pipelined_requests_are_answered_in_turn() -> None:
    """However many are sent at once, a connection has its thousand, others are answered
    meanwhile, and the rest is never looked at."""

    async def act(site: Site) -> None:
        async with await site.connect() as many, await site.connect() as other:
            answers = bytearray()

            async def flood() -> None:
                with contextlib.suppress(trio.BrokenResourceError):
                    await many.send_all(REQUEST * 5000)

            async def take() -> None:
                answers.extend(await rest(many))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(flood)
                nursery.start_soon(take)
                assert await status(other) == b"200"
            assert answers.count(b"HTTP/1.1 200 ") == 1000
            assert answers.count(b"connection: close") == 1
            await trio.sleep(GRACEFUL_TIMEOUT + 0.1)
            assert await status(other) == b"200"
            assert (site.statistics.connections, site.statistics.faults) == (1, 0)

    run(act)


def test_fault_of_the_application_is_one_requests(caplog: pytest.LogCaptureFixture) -> None:
    """It is answered with 500; the log says where it came from, and nothing that it says."""

    async def act(site: Site) -> None:
        async with await site.connect() as stream:
            assert await status(stream, b"GET /fault HTTP/1.1\r\nhost: x\r\n\r\n") == b"500"
        async with await site.connect() as stream:
            assert await status(stream) == b"200"

    run(act)
    (message,) = caplog.messages
    assert "RuntimeError at http_server.py:" in message
    assert "secret" not in caplog.text
