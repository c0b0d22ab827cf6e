"""The daemon as a process: its end, which is orderly and in time."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from support.feed import span
from support.producer import Producer, hello_frame
from support.sidecar import PROMISED, launch, running, start_sidecar

FLOOD = """
import socket, sys, threading
from support.feed import span
from support.producer import hello_frame
from lilo_engine_hook import wire
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
threading.Thread(target=lambda: [None for _ in iter(lambda: connection.recv(65536), b"")]).start()
connection.sendall(hello_frame())
packed = [wire.encode_event(span(["m"], 0.0, 1.0))] * 1000
first = 1
while True:
    connection.sendall(wire.encode_batch(first, 0, 0, wire.join(packed)))
    first += 1000
"""
TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_end_is_orderly_with_everybody_connected(tmp_path: Path, number: int) -> None:
    """An idle keep-alive client, a half-sent request and an open producer do not delay the end:
    what was sent is in the last line, the socket is gone, the status is 0."""
    with start_sidecar(tmp_path) as sidecar, Producer(sidecar.socket) as producer:
        producer.greet()
        sidecar.health()  # its connection stays open
        port = int(sidecar.url.rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", port)) as half:
            half.sendall(b"GET /healthz HTTP/1.1\r\nhost: ")
            sidecar.process.send_signal(signal.SIGSTOP)
            for _ in range(2):  # more than is read at once
                producer.post(*[span(["m"], 0.0, 1.0)] * 1000)
            sidecar.process.send_signal(number)
            sidecar.process.send_signal(signal.SIGCONT)
            assert sidecar.process.wait(PROMISED) == 0
        line = sidecar.line("lilo_critical_path", reason="shutdown")
        assert line["phases"]["forward_backward.execute"]["count"] == 2000
        assert not sidecar.socket.exists()
        assert [producer.acknowledged(), producer.acknowledged()] == [1000, 2000]
        assert sidecar.log.rest() == []


def test_producer_that_was_not_accepted_yet_is_read_at_the_end(tmp_path: Path) -> None:
    """What a connection in the queue had sent is in the last line, too."""
    with start_sidecar(tmp_path) as sidecar:
        sidecar.process.send_signal(signal.SIGSTOP)
        with Producer(sidecar.socket) as producer:
            sidecar.process.send_signal(signal.SIGTERM)
            producer.socket.sendall(hello_frame())
            producer.post(span(["m"], 0.0, 1.0))
            sidecar.process.send_signal(signal.SIGCONT)
            assert sidecar.process.wait(PROMISED) == 0
        line = sidecar.line("lilo_critical_path", reason="shutdown")
        assert line["phases"]["forward_backward.execute"]["count"] == 1


def test_flooding_producer_does_not_delay_the_end(tmp_path: Path) -> None:
    """One that never stops sending is cut off in time."""
    with start_sidecar(tmp_path) as sidecar:
        flood = subprocess.Popen(
            [sys.executable, "-c", FLOOD, str(sidecar.socket)],
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(TESTS)},
        )
        sidecar.wait_for(lambda health: health["trainer"]["connected"])
        try:
            assert sidecar.stop(timeout=PROMISED) == 0
        finally:
            flood.kill()
            flood.wait()


def test_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    """A second signal does not wait for the end that the first one began."""
    with start_sidecar(tmp_path) as sidecar:
        sidecar.process.send_signal(signal.SIGSTOP)
        sidecar.process.send_signal(signal.SIGTERM)
        sidecar.process.send_signal(signal.SIGINT)
        status = sidecar.stop(signal.SIGCONT)
        assert status in (-signal.SIGTERM, -signal.SIGINT)
        sidecar.stdout.rest()
        assert sidecar.lines("lilo_critical_path") == []


def test_socket_of_a_successor_is_not_removed(tmp_path: Path) -> None:
    """At its end it removes its own socket only, not what has taken the place since."""
    with start_sidecar(tmp_path) as sidecar:
        # Standing still, lest it puts its socket back before the other one has made its own.
        sidecar.process.send_signal(signal.SIGSTOP)
        sidecar.socket.unlink()
        with start_sidecar(tmp_path) as successor:
            sidecar.process.send_signal(signal.SIGCONT)
            assert sidecar.stop() == 0
            assert successor.socket.exists()
            with Producer(successor.socket) as producer:
                assert producer.greet() == 0


def test_end_of_stdin_stops_it_when_asked_to(tmp_path: Path) -> None:
    """Started by a supervisor, it does not outlive it."""
    process = launch(
        *("serve", "--stop-at-eof", "--socket", tmp_path / "timing.sock"), stdin=subprocess.PIPE
    )
    with running(process) as sidecar:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(PROMISED) == 0
        assert "stdin ended" in sidecar.log.rest()[0]
