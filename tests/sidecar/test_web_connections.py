"""How many connections the HTTP server holds, and who makes way when there is one more: with real
sockets on a virtual clock."""

from __future__ import annotations

import contextlib
import os
import resource

import pytest
import trio
import trio.testing

from lilo_sidecar.web.http_connection import ANSWER_TIMEOUT
from lilo_sidecar.web.server import MAX_CONNECTIONS, PATIENCE
from lilo_sidecar.web.untaken import MOMENT
from support.http_server import HANG, REQUEST, Site, rest, run, status


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
