"""How many connections the HTTP server holds, and who makes way when there is one more: with real
sockets on a virtual clock."""

from __future__ import annotations

import contextlib
import os
import resource
import socket

import pytest
import trio
import trio.testing

from lilo_sidecar.web.http_connection import ANSWER_TIMEOUT
from lilo_sidecar.web.server import MAX_CONNECTIONS, PATIENCE
from lilo_sidecar.web.untaken import MAX_UNTAKEN, MOMENT
from support.http_server import HANG, LARGE, MEDIUM, MEGABYTE, REQUEST, Site, rest, run, status

MOST = MAX_UNTAKEN // MEGABYTE + 1
"""Megabytes of answers that may be there at once."""


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
    clock = trio.testing.MockClock()

    async def act(site: Site) -> None:
        held = []
        for _ in range(MAX_CONNECTIONS):
            held.append(await site.connect())
            await held[-1].send_all(b"GET /medium HTTP/1.1\r\nhost: x\r\n\r\n" * 200)
            await trio.testing.wait_all_tasks_blocked()
        async with await site.connect() as early:
            with contextlib.suppress(trio.BrokenResourceError):  # closed before it was sent
                assert await status(early) == b""
        await trio.testing.wait_all_tasks_blocked()
        assert (site.statistics.refused, site.statistics.evicted) == (1, 0)
        clock.jump(1.1 * MOMENT)
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

    run(act, clock)


@pytest.mark.parametrize("path", [b"/medium", b"/megabyte", b"/large"])
def test_stream_of_clients_that_take_nothing(path: bytes) -> None:
    """One every 10 ms, for an answer of its own or the same one as others': they are let go of as
    they come, and everybody else is answered in time."""
    clock = trio.testing.MockClock()

    async def act(site: Site) -> None:
        async with contextlib.AsyncExitStack() as held:
            for number in range(3 * MAX_CONNECTIONS):
                stream = await held.enter_async_context(await site.connect())
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                await stream.send_all((b"GET " + path + b" HTTP/1.1\r\nhost: x\r\n\r\n") * 200)
                await trio.testing.wait_all_tasks_blocked()
                if number % 16 == 0:
                    answered = trio.Event()

                    async def ask(answered: trio.Event = answered) -> None:
                        async with await site.connect() as newcomer:
                            assert await status(newcomer) == b"200"
                        answered.set()

                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(ask)
                        begun = trio.current_time()
                        while not answered.is_set():
                            await trio.testing.wait_all_tasks_blocked()
                            assert trio.current_time() - begun < PATIENCE
                            clock.jump(MOMENT / 5)
                clock.jump(MOMENT / 5)
            assert site.statistics.refused == 0
            assert site.statistics.evicted > MAX_CONNECTIONS

    run(act, clock)


def test_answers_that_are_not_taken_are_bounded_together() -> None:
    """By their size: with over 4 MiB no other is made until one is taken; where none is within a
    moment the one there longest goes, whether or not its place is wanted."""
    clock = (
        trio.testing.MockClock()
    )  # stands still: nobody is given up on because the machine is slow

    async def act(site: Site) -> None:
        async with contextlib.AsyncExitStack() as held:

            async def asking(path: bytes = b"/megabyte") -> trio.SocketStream:
                stream = await held.enter_async_context(await site.connect())
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                await stream.send_all(_last(path))
                await trio.testing.wait_all_tasks_blocked()
                return stream

            untaken = [await asking() for _ in range(MOST)]
            assert site.made == MOST * MEGABYTE
            small, large = await asking(b"/medium"), await asking()
            assert site.made == MOST * MEGABYTE
            assert not site.server.is_working  # its clients are to
            await trio.aclose_forcefully(untaken.pop())
            assert (await rest(small)).count(b"x") >= MEDIUM
            await trio.testing.wait_all_tasks_blocked()
            assert site.made == MOST * MEGABYTE
            late = await asking(b"/medium")
            clock.jump(0.9 * MOMENT)
            await trio.testing.wait_all_tasks_blocked()
            assert (site.made, site.statistics.evicted) == (MOST * MEGABYTE, 0)
            clock.jump(0.2 * MOMENT)
            assert (await rest(late)).count(b"x") >= MEDIUM
            assert (site.made, site.statistics.evicted) == ((MOST - 1) * MEGABYTE, 1)
            assert len(await rest(untaken[0])) < MEGABYTE  # it was there longest
            for stream in (*untaken, large):
                await trio.aclose_forcefully(stream)
            await trio.testing.wait_all_tasks_blocked()
            assert (site.made, site.statistics.evicted) == (0, 1)

    run(act, clock)


@pytest.mark.parametrize("take", [False, True])
def test_as_many_as_can_ask_at_the_same_moment(take: bool) -> None:
    """What is made of their answers is bounded all the same. Those who take theirs all have them;
    of the others, none keeps a newcomer waiting."""

    async def act(site: Site) -> None:
        async with contextlib.AsyncExitStack() as held:
            streams = []
            for _ in range(MAX_CONNECTIONS - 1):
                streams.append(await held.enter_async_context(await site.connect()))
                if not take:
                    streams[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            await trio.testing.wait_all_tasks_blocked()
            sizes = []

            async def ask(stream: trio.SocketStream) -> None:
                await stream.send_all(_last(b"/megabyte"))
                if take:
                    sizes.append((await rest(stream)).count(b"x"))

            begun = trio.current_time()
            async with trio.open_nursery() as nursery:
                for stream in streams:
                    nursery.start_soon(ask, stream)
            async with await site.connect() as newcomer:
                assert await status(newcomer) == b"200"
            if take:
                assert [size >= MEGABYTE for size in sizes] == [True] * len(streams)
                assert site.statistics.evicted == 0
            else:
                assert trio.current_time() - begun <= len(streams) / (MOST - 1) * MOMENT
                assert site.most_made == MOST * MEGABYTE
            assert site.most_made <= MOST * MEGABYTE
            assert (site.statistics.refused, site.statistics.faults) == (0, 0)

    # Where time stands still, a slow machine makes no client slow.
    run(act, trio.testing.MockClock() if take else None)


def test_client_that_has_only_just_come_keeps_its_place() -> None:
    """Its request may be on the way: the one that does not take its answer goes for the next. Where
    all have only just come, the first of them goes."""
    clock = trio.testing.MockClock()

    async def act(site: Site) -> None:
        async with contextlib.AsyncExitStack() as held:
            streams = []
            for number in range(MAX_CONNECTIONS + 1):
                if number == MAX_CONNECTIONS - 1:
                    clock.jump(1.1 * MOMENT)
                streams.append(await held.enter_async_context(await site.connect()))
                if number < MAX_CONNECTIONS - 1:
                    await streams[-1].send_all(b"GET /medium HTTP/1.1\r\nhost: x\r\n\r\n" * 200)
                await trio.testing.wait_all_tasks_blocked()
            assert site.statistics.evicted == 1
            assert await status(streams[-2]) == b"200"
            assert await status(streams[-1]) == b"200"
            for stream in streams:
                await trio.aclose_forcefully(stream)
            await trio.testing.wait_all_tasks_blocked()
            streams = []
            for _ in range(MAX_CONNECTIONS + 1):
                streams.append(await held.enter_async_context(await site.connect()))
                await trio.testing.wait_all_tasks_blocked()
            assert (site.statistics.evicted, site.statistics.refused) == (2, 0)
            assert await rest(streams[0]) == b""
            assert await status(streams[1]) == b"200"

    run(act, clock)


def test_client_that_waits_for_others_keeps_its_place() -> None:
    """However long: it is not the one that takes its time."""
    clock = trio.testing.MockClock()

    async def act(site: Site) -> None:
        async with contextlib.AsyncExitStack() as held:

            async def asking(request: bytes) -> trio.SocketStream:
                stream = await held.enter_async_context(await site.connect())
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                await stream.send_all(request)
                await trio.testing.wait_all_tasks_blocked()
                return stream

            for _ in range(MAX_CONNECTIONS - 1):
                await asking(_last(b"/megabyte"))
            waiting = await asking(_last(b"/medium"))
            while clock.current_time() <= PATIENCE:
                clock.jump(MOMENT)
                await trio.testing.wait_all_tasks_blocked()
            evicted = site.statistics.evicted
            for _ in range(MAX_CONNECTIONS - site.statistics.connections):
                await asking(HANG)
            over = await asking(REQUEST)
            assert await rest(over) == b""
            assert (site.statistics.refused, site.statistics.evicted) == (1, evicted)
            for _ in range(MAX_CONNECTIONS):
                clock.jump(MOMENT)
                await trio.testing.wait_all_tasks_blocked()
            assert site.hanging.is_set()  # they came after it
            assert (await rest(waiting)).count(b"x") >= MEDIUM

    run(act, clock)


def test_an_answer_that_is_large_by_itself_is_given() -> None:
    """What is sent alone may be of any size, while it is taken."""

    async def act(site: Site) -> None:
        async with await site.connect() as stream:
            await stream.send_all(b"GET /large HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            assert (await rest(stream)).count(b"x") >= LARGE
        assert site.statistics.evicted == 0

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


def test_probe_that_says_nothing_is_let_go_of_at_once() -> None:
    """However many look whether the port is open, there is room for who wants an answer."""

    async def act(site: Site) -> None:
        for _ in range(MAX_CONNECTIONS + 1):
            await (await site.connect()).aclose()
            await trio.testing.wait_all_tasks_blocked()
        async with await site.connect() as stream:
            assert await status(stream) == b"200"

    run(act)


def _last(path: bytes) -> bytes:
    """The last request of a connection."""
    return b"GET " + path + b" HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
