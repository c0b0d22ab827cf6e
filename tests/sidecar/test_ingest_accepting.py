"""Producers that come while there are no descriptors, and many that come at once: the intake with
real sockets."""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import socket
from pathlib import Path

import pytest
import trio
import trio.testing

from lilo_sidecar.intake.ingest import MAX_ACCEPTS, MAX_CONNECTIONS
from lilo_sidecar.intake.listening import unix_listener
from lilo_sidecar.intake.throttle import LINES
from support.intake import Intake, run
from support.producer import Producer, hello_frame

pytestmark = pytest.mark.usefixtures("everything_logged")


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

    trio.run(main, clock=trio.testing.MockClock())  # nobody's time for a hello is over
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
