"""The HTTP server's bounds, with real sockets on a virtual clock."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing
from starlette.types import Receive, Scope, Send

from lilo_sidecar.intake.listening import http_listener
from lilo_sidecar.intake.throttle import LINES
from lilo_sidecar.web.http1 import MAX_HEAD
from lilo_sidecar.web.http_connection import (
    ANSWER_TIMEOUT,
    GRACEFUL_TIMEOUT,
    HEAD_TIMEOUT,
)
from lilo_sidecar.web.server import MAX_CONNECTIONS, PATIENCE, HttpServer, HttpStatistics

REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
HANG = b"GET /hang HTTP/1.1\r\nhost: x\r\n\r\n"
LARGE = 16 * 1024 * 1024
"""Bytes: more than a connection's buffers hold."""
BODY = b"x" * LARGE


class Site:
    """A running server; ``/hang`` is never answered, ``/slow`` after 0.6 s, ``/large`` and
    ``/medium`` at length, ``/fault`` not well."""

    def __init__(self, address: tuple[str, int], stop: trio.Event) -> None:
        self.address = address
        self.stop = stop
        self.server = HttpServer(self.app)
        self.hanging = trio.Event()
        self.bodies: list[bytes] = []
        """What the application was told that clients sent."""

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = b""
        match scope["path"]:
            case "/hang":
                self.hanging.set()
                await trio.sleep_forever()
            case "/slow":
                await trio.sleep(0.6)
            case "/fault":
                raise RuntimeError("secret")
            case "/large":
                body = BODY
            case "/medium":
                body = BODY[:16384]
            case "/body":
                self.bodies.append((await receive())["body"])
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def connect(self) -> trio.SocketStream:
        return await trio.open_tcp_stream(*self.address)

    @property
    def statistics(self) -> HttpStatistics:
        return self.server.statistics()


def run(act: Callable[[Site], Awaitable[None]]) -> float:
    """Run ``act`` beside a server, then stop that; the seconds that stopping took."""

    async def main() -> float:
        listener = http_listener(socket.AF_INET, ("127.0.0.1", 0))
        site = Site(listener.getsockname(), trio.Event())
        async with trio.open_nursery() as nursery:
            await nursery.start(site.server.run, listener, site.stop.wait)
            await act(site)
            before = trio.current_time()
            site.stop.set()
        return trio.current_time() - before

    return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0.05))


async def rest(stream: trio.SocketStream) -> bytes:
    """What comes until the connection is closed."""
    data = bytearray()
    with contextlib.suppress(trio.BrokenResourceError):
        while part := await stream.receive_some(65536):
            data += part
    return bytes(data)


async def status(stream: trio.SocketStream, request: bytes = REQUEST) -> bytes:
    """Send a request; the status of the answer, empty if the connection is closed instead."""
    await stream.send_all(request)
    head = bytes(await stream.receive_some(65536))
    return head[9:12]


@pytest.mark.parametrize(
    ("sent", "timeout"),
    [
        (b"", 5),
        (b"GET / HT", 5),
        (REQUEST, 30),
        (REQUEST + b"GET / HT", 5),
    ],
)
def test_idle_connection_is_closed_in_time(sent: bytes, timeout: int) -> None:
    """Whether it said nothing, half a request, or a whole one before; only the one that keeps
    its connection for the next request may take its time, and is no offender."""

    async def act(site: Site) -> None:
        async with await site.connect() as stream:
            before = trio.current_time()
            await stream.send_all(sent)
            await rest(stream)
            assert trio.current_time() - before == pytest.approx(timeout, abs=0.5)
            await trio.testing.wait_all_tasks_blocked()
            assert site.statistics.timed_out == (timeout == 5)
            assert site.statistics.connections == 0

    run(act)


def test_head_that_comes_bit_by_bit_wins_no_time() -> None:
    """The time for a head begins with its first byte, also on a connection that was answered."""

    async def act(site: Site) -> None:
        async with await site.connect() as stream:
            assert await status(stream) == b"200"
            before = trio.current_time()
            with contextlib.suppress(trio.BrokenResourceError):
                for byte in b"GET / HTTP/1.1\r\nhost: a-long-name\r\n":
                    await stream.send_all(bytes([byte]))
                    await trio.sleep(1)
            assert trio.current_time() - before == pytest.approx(HEAD_TIMEOUT, abs=2.5)
            assert site.statistics.timed_out == 1

    run(act)


def test_head_has_its_time_from_its_first_byte() -> None:
    """However long that was in coming; the connection had its time for it."""

    async def act(site: Site) -> None:
        async with await site.connect() as stream:
            await trio.sleep(HEAD_TIMEOUT - 1)
            await stream.send_all(REQUEST[:5])
            await trio.sleep(HEAD_TIMEOUT - 1)
            assert await status(stream, REQUEST[5:]) == b"200"

    run(act)


def test_work_on_an_answer_is_told_from_a_wait_for_its_reader() -> None:
    """So that producers give way to the one and not to the other."""

    async def act(site: Site) -> None:
        async with await site.connect() as idle, await site.connect() as asking:
            assert await status(idle) == b"200"
            await trio.testing.wait_all_tasks_blocked()
            assert not site.server.is_working
            await asking.send_all(HANG)
            await site.hanging.wait()
            assert site.server.is_working
        async with await site.connect() as deaf:
            await trio.testing.wait_all_tasks_blocked(0.01)
            await deaf.send_all(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n")
            await trio.testing.wait_all_tasks_blocked(0.01)
            await trio.sleep(2 * GRACEFUL_TIMEOUT)  # the one that hung is gone by then
            assert site.statistics.connections == 1
            assert not site.server.is_working

    run(act)


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


@pytest.mark.parametrize("sent", [b"", b"GET / HT", REQUEST])
def test_idle_connections_make_way(sent: bytes) -> None:
    """However many connections are held open, whoever comes with a request is answered: of those
    that are not being answered, the one idle longest goes, and is counted."""

    async def act(site: Site) -> None:
        busy = await site.connect()
        await busy.send_all(HANG)
        await site.hanging.wait()
        held = []
        for _ in range(MAX_CONNECTIONS - 1):
            stream = await site.connect()
            await stream.send_all(sent)
            if sent == REQUEST:
                await stream.receive_some(65536)
            held.append(stream)
            await trio.testing.wait_all_tasks_blocked()
            if len(held) == 1:
                await trio.sleep(0.1)  # it is idle for longer than the others
        assert site.statistics.evicted == 0
        for number in range(1, 4):
            async with await site.connect() as newcomer:
                assert await status(newcomer) == b"200"
                assert site.statistics.evicted == 1
            await rest(held[0])  # closed
            await trio.testing.wait_all_tasks_blocked()
            assert site.statistics.connections == MAX_CONNECTIONS - 1, number
        statistics = site.statistics
        assert (statistics.refused, statistics.timed_out) == (0, 0)
        for stream in (busy, *held):
            await trio.aclose_forcefully(stream)

    run(act)


def test_connections_are_bounded() -> None:
    """Where all are being answered, one more is closed at once and counted; there is room again
    when one leaves."""

    async def act(site: Site) -> None:
        streams = [await site.connect() for _ in range(MAX_CONNECTIONS)]
        for stream in streams:
            await stream.send_all(HANG)
        await trio.testing.wait_all_tasks_blocked(0.01)
        async with await site.connect() as over:
            with contextlib.suppress(trio.BrokenResourceError):  # closed before it was sent
                assert await status(over) == b""
        assert (site.statistics.refused, site.statistics.evicted) == (1, 0)
        await trio.sleep(ANSWER_TIMEOUT)
        await trio.testing.wait_all_tasks_blocked(0.01)
        async with await site.connect() as late:
            assert await status(late) == b"200"
        for stream in streams:
            await stream.aclose()

    run(act)


def test_clients_that_do_not_take_their_answers_make_way() -> None:
    """However many send requests and do not read: whoever comes gets an answer, as soon as one of
    them had more than a moment; of them, the one that had most goes."""

    async def act(site: Site) -> None:
        held = []
        for number in range(MAX_CONNECTIONS):
            held.append(await site.connect())
            await held[-1].send_all(b"GET /medium HTTP/1.1\r\nhost: x\r\n\r\n" * 200)
            await trio.testing.wait_all_tasks_blocked()
            if number == 0:
                await trio.sleep(0.1)  # it is at it for longer than the others
        async with await site.connect() as early:
            with contextlib.suppress(trio.BrokenResourceError):  # closed before it was sent
                assert await status(early) == b""
        await trio.testing.wait_all_tasks_blocked()
        assert (site.statistics.refused, site.statistics.evicted) == (1, 0)
        await trio.sleep(PATIENCE)
        for _ in range(3):
            async with await site.connect() as newcomer:
                assert await status(newcomer) == b"200"
                assert site.statistics.evicted == 1
            await trio.testing.wait_all_tasks_blocked()
            assert site.statistics.connections == MAX_CONNECTIONS - 1
        assert (await rest(held[0])).count(b"HTTP/1.1 200 ") < 200
        assert site.statistics.refused == 1
        for stream in held:
            await trio.aclose_forcefully(stream)

    run(act)


def test_answers_that_are_not_taken_are_bounded_together() -> None:
    """By their size: the one that is there for longest goes when there is one more, whether or
    not its place is wanted; whoever takes answers is not disturbed."""

    async def act(site: Site) -> None:
        async with await site.connect() as taken, await site.connect() as first:
            for stream in (first, taken):
                await stream.send_all(
                    b"GET /large HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
                )
            assert (await rest(taken)).count(b"x") >= LARGE
            assert site.statistics.evicted == 0
            async with await site.connect() as second:
                await trio.sleep(0.1)
                await second.send_all(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n")
                await trio.testing.wait_all_tasks_blocked()
                assert site.statistics.evicted == 1
                assert len(await rest(first)) < LARGE

    run(act)


def test_answers_one_after_the_other_are_no_pause() -> None:
    """A client whose next request waits already is not quiet in between, and its time goes on,
    though none of its answers takes long."""

    async def act(site: Site) -> None:
        many = await site.connect()
        await many.send_all(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n" * 3)
        await trio.sleep(0.5)
        held = []
        for _ in range(MAX_CONNECTIONS - 1):
            held.append(await site.connect())
            await held[-1].send_all(HANG)
            await trio.testing.wait_all_tasks_blocked()
        await trio.sleep(PATIENCE - 0.4)
        async with await site.connect() as newcomer:
            assert await status(newcomer) == b"200"
        assert (await rest(many)).count(b"HTTP/1.1 200 ") == 1
        assert (site.statistics.refused, site.statistics.evicted) == (0, 1)
        for stream in (many, *held):
            await trio.aclose_forcefully(stream)

    run(act)


def test_lack_of_descriptors_is_waited_out(caplog: pytest.LogCaptureFixture) -> None:
    """Readers who come meanwhile are answered once there are some again; one line says so, and
    how often it was tried."""

    async def act(site: Site) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with trio.socket.socket() as waiting:
            highest = max(int(name) for name in os.listdir("/proc/self/fd"))  # noqa: PTH208
            resource.setrlimit(resource.RLIMIT_NOFILE, (highest, hard))
            held = []
            try:
                while True:
                    held.append(os.dup(0))
            except OSError:
                pass
            try:
                await waiting.connect(site.address)
                await trio.sleep(5)
                assert site.statistics.connections == 0
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                for descriptor in held:
                    os.close(descriptor)
            assert await status(trio.SocketStream(waiting)) == b"200"

    run(act)
    message, summary = caplog.messages
    assert "cannot accept readers for now" in message
    assert "lines about 'accept': 1 were written, " in summary


def test_log_of_faults_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """However often a request runs into one, the log has some of them, and how many more."""

    async def act(site: Site) -> None:
        for _ in range(3 * LINES):
            async with await site.connect() as stream:
                assert await status(stream, b"GET /fault HTTP/1.1\r\nhost: x\r\n\r\n") == b"500"

    run(act)
    assert len(caplog.messages) == LINES + 1
    assert f"{LINES} were written, {2 * LINES} more were left out" in caplog.messages[-1]


def test_answer_that_is_not_taken_is_given_up_on() -> None:
    """A client that never reads holds its connection for only so long."""

    async def act(site: Site) -> None:
        async with await site.connect() as stream:
            await stream.send_all(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n")
            await trio.sleep(ANSWER_TIMEOUT - 1)
            assert site.statistics.timed_out == 0
            await trio.sleep(2)
            assert site.statistics.timed_out == 1
            assert len(await rest(stream)) < LARGE

    run(act)


def test_answer_that_is_taken_slowly_arrives_whole() -> None:
    """The time is for a client that takes nothing; a large answer is no offence."""

    async def act(site: Site) -> None:
        async with await site.connect() as stream:
            await stream.send_all(b"GET /large HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            await trio.sleep(ANSWER_TIMEOUT / 2)
            assert (await rest(stream)).count(b"x") >= LARGE
            assert site.statistics.timed_out == 0

    run(act)


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


def test_what_follows_the_last_request_does_not_hold_the_connection() -> None:
    """The answer arrives whole, and the connection ends."""

    async def act(site: Site) -> None:
        async with await site.connect() as stream:
            last = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
            await stream.send_all(last + REQUEST)
            assert (await rest(stream)).count(b"HTTP/1.1 200 ") == 1
            await trio.sleep(GRACEFUL_TIMEOUT + 0.1)
            statistics = site.statistics
            assert (statistics.connections, statistics.faults) == (0, 0)

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
    assert "RuntimeError at test_web.py:" in message
    assert "secret" not in caplog.text


def test_probe_that_says_nothing_is_let_go_of_at_once() -> None:
    """However many look whether the port is open, there is room for who wants an answer."""

    async def act(site: Site) -> None:
        for _ in range(MAX_CONNECTIONS + 1):
            await (await site.connect()).aclose()
            await trio.testing.wait_all_tasks_blocked()
        async with await site.connect() as stream:
            assert await status(stream) == b"200"

    run(act)


def test_client_that_stops_sending_still_gets_its_answer() -> None:
    """A half-closed connection is answered, then ended."""

    async def act(site: Site) -> None:
        async with await site.connect() as stream:
            await stream.send_all(REQUEST)
            await stream.send_eof()
            answer = b""
            while data := await stream.receive_some(65536):
                answer += bytes(data)
            assert answer.startswith(b"HTTP/1.1 200")

    run(act)


def test_client_that_stops_sending_is_not_answered_for_ever() -> None:
    """It may well be gone: there is no telling."""

    async def act(site: Site) -> None:
        async with await site.connect() as stream:
            await stream.send_all(HANG)
            await site.hanging.wait()
            await stream.send_eof()
            before = trio.current_time()
            await rest(stream)
            assert trio.current_time() - before == pytest.approx(GRACEFUL_TIMEOUT, abs=0.1)
            assert site.statistics.timed_out == 0

    run(act)


def test_stop_is_immediate_with_idle_connections() -> None:
    """Keep-alive connections are no reason to wait."""
    with socket.socket() as idle:

        async def act(site: Site) -> None:
            idle.connect(site.address)
            idle.sendall(REQUEST)
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert idle.recv(65536).startswith(b"HTTP/1.1 200")

        assert run(act) == 0


def test_stop_waits_for_an_answer_under_way_only_so_long() -> None:
    """What is not answered within the grace is cut off, and nobody new is let in meanwhile."""
    with socket.socket() as waiting:

        async def act(site: Site) -> None:
            waiting.connect(site.address)
            waiting.sendall(b"GET /hang HTTP/1.1\r\nhost: x\r\n\r\n")
            await site.hanging.wait()

        assert run(act) == pytest.approx(GRACEFUL_TIMEOUT, abs=0.01)
