"""The intake's timeouts, its faults and its end, with real sockets on a virtual clock."""

from __future__ import annotations

import contextlib
import logging
import select
from pathlib import Path

import pytest
import trio
import trio.testing

from lilo_engine_hook import wire
from lilo_sidecar.intake import ingest
from lilo_sidecar.intake.ingest import ANSWER_TIMEOUT, DRAIN_TIMEOUT, HELLO_TIMEOUT
from lilo_sidecar.intake.throttle import LINES
from support.feed import span
from support.intake import Intake, run
from support.producer import Producer, hello_frame

pytestmark = pytest.mark.usefixtures("everything_logged")


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


def test_producer_that_takes_no_answers_is_let_go(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A full answer queue holds up its own connection only, and not for ever; what it sent
    until then counts."""

    async def act(intake: Intake) -> None:
        with Producer(intake.path) as deaf, Producer(intake.path, "other") as other:
            deaf.socket.sendall(hello_frame())
            deaf.socket.setblocking(False)
            empty = wire.encode_batch(1, 0, 0, wire.join([]))
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
