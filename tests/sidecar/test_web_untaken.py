"""Clients that do not take their answers: what the HTTP server holds of them, and who makes way for
whom: with real sockets on a virtual clock."""

from __future__ import annotations

import contextlib
import socket

import pytest
import trio
import trio.testing

from lilo_sidecar.web.server import MAX_CONNECTIONS, PATIENCE
from lilo_sidecar.web.untaken import MAX_UNTAKEN, MOMENT
from support.http_server import HANG, LARGE, MEDIUM, MEGABYTE, REQUEST, Site, rest, run, status

MOST = MAX_UNTAKEN // MEGABYTE + 1
"""Megabytes of answers that may be there at once."""


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
    clock = trio.testing.MockClock()  # stands still: a slow machine makes no client slow

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
            await trio.testing.wait_all_tasks_blocked()
            assert site.statistics.evicted == 1
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
            assert (site.statistics.refused, site.statistics.evicted) == (1, evicted)
            assert await rest(over) == b""
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


def _last(path: bytes) -> bytes:
    """The last request of a connection."""
    return b"GET " + path + b" HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
