"""Whose turn it is, a producer's batch or a reader's answer: the intake with real sockets."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import trio
import trio.testing

from lilo_engine_hook import wire
from lilo_sidecar.intake import ingest
from lilo_sidecar.intake.connection import READ_BYTES
from lilo_sidecar.intake.listening import unix_listener
from support.feed import span
from support.intake import Intake, run
from support.producer import Producer, hello_frame

pytestmark = pytest.mark.usefixtures("everything_logged")


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
