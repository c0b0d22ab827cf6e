"""The intake's timeouts and faults, with real sockets on a virtual clock."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import resource
import select
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from lilo_engine_hook import wire
from lilo_sidecar.core.critical_path import CriticalPath
from lilo_sidecar.core.timing import Timing
from lilo_sidecar.intake import ingest
from lilo_sidecar.intake.connection import READ_BYTES
from lilo_sidecar.intake.ingest import (
    ANSWER_TIMEOUT,
    DRAIN_TIMEOUT,
    HELLO_TIMEOUT,
    MAX_ACCEPTS,
    MAX_CONNECTIONS,
    Ingest,
)
from lilo_sidecar.intake.listening import UnixListener, unix_listener
from lilo_sidecar.intake.throttle import LINES
from lilo_sidecar.state.recorder import Recorder
from support.feed import span
from support.producer import Producer, hello_frame


class Intake:
    """A running intake."""

    def __init__(self, path: Path, listener: UnixListener) -> None:
        self.path = path
        self.listener = listener
        self.core = CriticalPath()
        self.ended: list[Timing] = []
        self.ingest = Ingest(Recorder(self.core, None, trio.current_time), self.ended.append)

    async def settle(self) -> None:
        """Return once everything that was sent has been dealt with."""
        await trio.testing.wait_all_tasks_blocked(0.01)


def run(tmp_path: Path, act: Callable[[Intake], Awaitable[None]]) -> Intake:
    """Run ``act`` beside an intake. Seconds pass as soon as everything waits for them."""

    async def main() -> Intake:
        path = tmp_path / "timing.sock"
        with unix_listener(path) as listener:
            intake = Intake(path, listener)
            async with trio.open_nursery() as nursery:
                await nursery.start(intake.ingest.run, listener)
                await act(intake)
                nursery.cancel_scope.cancel()
            return intake

    return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0.02))


def test_silent_connection_is_closed_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No hello in time ends a connection, is counted and logged; nothing is said that a hook
    would take for a complaint about its events."""

    async def act(intake: Intake) -> None:
        with Producer(intake.path) as silent:
            await trio.sleep(HELLO_TIMEOUT - 1)
            silent.socket.sendall(hello_frame()[:5])
            await intake.settle()
            assert intake.ingest.statistics().connections == 1
            await trio.sleep(1.5)
            assert intake.ingest.statistics().connections == 0
            assert intake.ingest.statistics().protocol_errors == 1
            assert silent.hear() is None

    run(tmp_path, act)
    (message,) = caplog.messages
    assert "no hello within 10 s" in message


def test_idle_producer_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it said hello, a producer may be silent for as long as it likes."""
    monkeypatch.setattr(ingest, "LOOK_INTERVAL", 1000 * HELLO_TIMEOUT)  # a jump for each takes long

    async def act(intake: Intake) -> None:
        with Producer(intake.path) as producer:
            producer.socket.sendall(hello_frame())
            await trio.sleep(1000 * HELLO_TIMEOUT)
            assert intake.ingest.statistics().connections == 1
            assert producer.acknowledged() == 0

    run(tmp_path, act)


def test_readers_who_wait_come_first(tmp_path: Path) -> None:
    """As long as an answer is being made, no batch is applied; not a moment longer."""

    async def act(intake: Intake) -> None:
        left = 20

        def others_wait() -> bool:
            nonlocal left
            left = max(0, left - 1)
            assert left == 0 or intake.core.lifetime(0.0).delivery.applied == 0
            return left > 0

        with Producer(intake.path) as producer:
            producer.socket.sendall(hello_frame())
            await intake.settle()
            intake.ingest.give_way_to(others_wait)
            producer.post(span(["m"], 0.0, 1.0))
            await intake.settle()
            assert left == 0
            assert intake.core.lifetime(0.0).delivery.applied == 1

    run(tmp_path, act)


def test_request_that_comes_with_a_batch_is_answered_first(tmp_path: Path) -> None:
    """Whichever of the two the event loop turns to first: that somebody waits is known only once
    the request was read, and a batch takes longer than an answer."""
    theirs, ours = socket.socketpair()
    waiting = False
    applied: list[int] = []

    async def act(intake: Intake) -> None:
        nonlocal waiting

        async def answer() -> None:
            nonlocal waiting
            while True:
                await trio.lowlevel.wait_readable(ours)
                ours.recv(1)
                waiting = True
                for _ in range(5):
                    applied.append(intake.core.lifetime(0.0).delivery.applied)
                    await trio.lowlevel.checkpoint()
                waiting = False

        intake.ingest.give_way_to(lambda: waiting)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer)
            with Producer(intake.path) as producer:
                producer.socket.sendall(hello_frame())
                await intake.settle()
                for number in range(20):
                    applied.clear()
                    producer.post(span(["m"], 0.0, 1.0))
                    theirs.send(b"?")
                    await intake.settle()
                    assert applied == [number] * 5
                    assert intake.core.lifetime(0.0).delivery.applied == number + 1
            nursery.cancel_scope.cancel()

    with theirs, ours:
        run(tmp_path, act)


def test_readers_without_end_keep_no_producer_out(tmp_path: Path) -> None:
    """Somebody waits for an answer all the time: batches are applied all the same."""

    async def main() -> None:
        with unix_listener(tmp_path / "timing.sock") as listener:
            intake = Intake(tmp_path / "timing.sock", listener)
            intake.ingest.give_way_to(lambda: True)
            async with trio.open_nursery() as nursery:
                await nursery.start(intake.ingest.run, listener)
                with Producer(intake.path) as producer:
                    await trio.to_thread.run_sync(producer.greet)
                    for number in range(1, 4):
                        assert await trio.to_thread.run_sync(producer.work) == number
                nursery.cancel_scope.cancel()

    trio.run(main)  # by the real clock, which goes on while everybody works


def test_turn_of_a_producer_is_worth_its_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While readers wait, a producer gets a turn in which all that it sent is taken in: by one
    small piece at a time, many readers would hold it up for longer than its queue lasts."""
    monkeypatch.setattr(ingest, "GIVE_WAY", 0.0)

    async def act(intake: Intake) -> None:
        intake.ingest.give_way_to(lambda: True)
        with Producer(intake.path) as producer:
            producer.socket.sendall(hello_frame())
            await intake.settle()
            producer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**20)
            for _ in range(20):
                producer.post(*[span(["m"], 0.0, 1.0)] * 100)
            turns = 0
            while intake.core.lifetime(0.0).delivery.applied < 2000:
                await trio.lowlevel.checkpoint()
                turns += 1
            assert turns < 2000 * len(wire.encode_event(span(["m"], 0.0, 1.0))) / READ_BYTES / 2

    run(tmp_path, act)


def test_producer_that_takes_no_answers_is_let_go(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A full answer queue holds up its own connection only, and not for ever; what it sent
    until then counts."""

    async def act(intake: Intake) -> None:
        with Producer(intake.path) as deaf, Producer(intake.path, "other") as other:
            deaf.socket.sendall(hello_frame())
            deaf.socket.setblocking(False)
            empty = wire.encode_batch(1, 0, 0, [])
            while select.select([], [deaf.socket], [], 0)[1]:
                with contextlib.suppress(BlockingIOError):
                    while True:
                        deaf.socket.send(empty)
                await trio.testing.wait_all_tasks_blocked(0.005)
            other.socket.sendall(hello_frame("other", "backend"))
            await intake.settle()
            assert other.acknowledged() == 0
            await trio.sleep(ANSWER_TIMEOUT)
            await intake.settle()
            assert intake.ingest.statistics().protocol_errors == 1
            assert intake.ingest.statistics().connections == 1

    run(tmp_path, act)
    (message,) = caplog.messages
    assert "answers unread for 10 s" in message


def test_fault_of_the_core_ends_one_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is logged with its place, without its text, and counted apart; the producer is told, so
    that it does not send the same batch for ever; others go on."""

    async def act(intake: Intake) -> None:
        real = intake.core.apply

        def apply(boot_id: str, batch: wire.Batch, now: float) -> int:
            if boot_id == "unlucky":
                raise RuntimeError("secret-model")
            return real(boot_id, batch, now)

        monkeypatch.setattr(intake.core, "apply", apply)
        with Producer(intake.path, "unlucky") as unlucky, Producer(intake.path, "lucky") as lucky:
            for producer in (unlucky, lucky):
                producer.socket.sendall(hello_frame(producer.boot))
                producer.post(span(["m"], 0.0, 1.0))
            await intake.settle()
            assert unlucky.refused() == "fault"
            assert [lucky.acknowledged(), lucky.acknowledged()] == [0, 1]
            statistics = intake.ingest.statistics()
            assert (statistics.faults, statistics.protocol_errors) == (1, 0)
            assert statistics.connections == 1
            assert intake.core.health(0.0).producers == 1

    run(tmp_path, act)
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "a fault of the sidecar: RuntimeError at test_ingest.py:" in record.getMessage()
    assert "secret-model" not in caplog.text


def test_batch_is_applied_whole_or_not_at_all(tmp_path: Path) -> None:
    """One name too many at its end, and nothing of it counts."""

    async def act(intake: Intake) -> None:
        with Producer(intake.path) as producer:
            producer.socket.sendall(hello_frame())
            producer.post(*(span(["m"], 0.0, 1.0, f"name {number}") for number in range(256)))
            await intake.settle()
            assert producer.refused() == "names"
            assert intake.core.timing("m", reset=False, now=0.0).phases == {}

    run(tmp_path, act)


def test_restart_is_seen_whatever_is_read_first(tmp_path: Path) -> None:
    """However many trainers come and go before the intake looks, each is the restart of the
    one before, and none is seen beside another."""

    async def act(intake: Intake) -> None:
        for number in range(20):
            with Producer(intake.path, f"boot {number}") as producer:
                producer.socket.sendall(hello_frame(producer.boot))
                producer.post(*[span(["m"], 0.0, 1.0)] * (number + 1))
        await intake.settle()
        counts = [timing.phases["forward_backward.execute"].count for timing in intake.ended]
        assert counts == list(range(1, 20))
        lifetime = intake.core.lifetime(0.0)
        assert lifetime.phases["forward_backward.execute"].count == 20

    run(tmp_path, act)


def test_drain_takes_in_what_was_sent_and_answers(tmp_path: Path) -> None:
    """Of connections that are open and of those not accepted yet, without waiting for more."""

    async def act(intake: Intake) -> None:
        with Producer(intake.path, "one") as one, Producer(intake.path, "two") as two:
            one.socket.sendall(hello_frame("one"))
            await intake.settle()
            one.post(span(["m"], 0.0, 1.0))
            two.socket.sendall(hello_frame("two", "backend"))
            two.post(span(["m"], 0.0, 1.0))
            before = trio.current_time()
            await intake.ingest.drain(intake.listener)
            assert trio.current_time() - before < DRAIN_TIMEOUT
            assert intake.core.health(0.0).producers == 2
            lifetime = intake.core.lifetime(0.0)
            assert lifetime.phases["forward_backward.execute"].count == 2
            for producer in (one, two):
                assert [producer.acknowledged(), producer.acknowledged()] == [0, 1]

    run(tmp_path, act)


def test_drain_takes_in_one_that_only_just_connected(tmp_path: Path) -> None:
    """Even when no other connection has anything to read."""

    async def act(intake: Intake) -> None:
        with Producer(intake.path) as late:
            late.socket.sendall(hello_frame())
            late.post(span(["m"], 0.0, 1.0))
            await intake.ingest.drain(intake.listener)
            lifetime = intake.core.lifetime(0.0)
            assert lifetime.phases["forward_backward.execute"].count == 1

    run(tmp_path, act)


def test_lack_of_descriptors_is_waited_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Those who connect meanwhile are served once there are some again; one line says so."""

    async def act(intake: Intake) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with Producer(intake.path) as producer:
            highest = max(int(name) for name in os.listdir("/proc/self/fd"))  # noqa: PTH208
            resource.setrlimit(resource.RLIMIT_NOFILE, (highest, hard))
            held = []
            try:
                while True:
                    held.append(os.dup(0))
            except OSError:
                pass
            try:
                producer.socket.sendall(hello_frame())
                await trio.sleep(5)
                assert intake.ingest.statistics().connections == 0
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                for descriptor in held:
                    os.close(descriptor)
            await trio.sleep(1)
            await intake.settle()
            assert producer.acknowledged() == 0

    run(tmp_path, act)
    message, summary = caplog.messages
    assert "cannot accept connections for now" in message
    assert "lines about 'accept': 1 were written, " in summary


def test_many_who_come_at_once_are_accepted_in_turns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever number waits, others get their turn after so many; one that is refused is closed
    in the turn it came, and the log has some of it."""

    async def main() -> None:
        path = tmp_path / "timing.sock"
        newcomers = 5 * MAX_ACCEPTS
        with unix_listener(path) as listener, contextlib.ExitStack() as held:
            comers = [held.enter_context(Producer(path)) for _ in range(newcomers)]
            intake = Intake(path, listener)
            done, turns = 0, [0]
            async with trio.open_nursery() as nursery:
                await nursery.start(intake.ingest.run, listener)
                while done < newcomers:
                    await trio.lowlevel.checkpoint()
                    statistics = intake.ingest.statistics()
                    assert statistics.connections <= MAX_CONNECTIONS
                    done = statistics.connections + statistics.refused_connections
                    turns.append(done)
                nursery.cancel_scope.cancel()
            assert all(comer.refused() == "busy" for comer in comers[MAX_CONNECTIONS:])
        steps = [after - before for before, after in itertools.pairwise(turns)]
        assert max(steps) == MAX_ACCEPTS

    trio.run(main)
    refusals = [message for message in caplog.messages if "producers are connected" in message]
    assert len(refusals) == LINES
    left_out = 4 * MAX_ACCEPTS + MAX_ACCEPTS - MAX_CONNECTIONS - LINES
    assert f"lines about 'busy': {LINES} were written, {left_out} more were left out" in caplog.text


def test_many_find_room_to_wait(tmp_path: Path) -> None:
    """A thousand can knock while the intake is busy with something else, and none is told that
    nobody is there."""
    path = tmp_path / "timing.sock"
    with unix_listener(path), contextlib.ExitStack() as held:
        for _ in range(1000):
            comer = held.enter_context(socket.socket(socket.AF_UNIX))
            comer.setblocking(False)
            comer.connect(str(path))


def test_log_of_bad_connections_is_bounded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """However many break the protocol, the log has some of each kind, and how many more."""

    async def act(intake: Intake) -> None:
        for _ in range(3 * LINES):
            with Producer(intake.path) as bad:
                bad.socket.sendall(b"\xff" * 8)
                await intake.settle()
        for number in range(2):
            with Producer(intake.path) as other:
                other.socket.sendall(hello_frame() + hello_frame())
                await intake.settle()
            assert intake.ingest.statistics().protocol_errors == 3 * LINES + number + 1

    run(tmp_path, act)
    assert sum(": frame_size: " in message for message in caplog.messages) == LINES
    assert sum(": order: " in message for message in caplog.messages) == 2
    assert caplog.messages[-1] == (
        f"lines about 'frame_size': {LINES} were written, {2 * LINES} more were left out"
    )


@pytest.fixture(autouse=True)
def everything_logged(caplog: pytest.LogCaptureFixture) -> None:
    """From INFO up, as the daemon does."""
    caplog.set_level(logging.INFO)
