"""The HTTP answer is lost after the interval was ended: it comes again in the next one."""

from __future__ import annotations

import random
import socket
import struct
import time
from collections import Counter
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from support.faults import (
    Reader,
    assert_adds_up,
    assert_all_applied,
    assert_smooth,
    load,
    progressed,
)
from support.sidecar import start_sidecar
from support.soak import rounds

ROUNDS = rounds(150, soak=20_000)
RESET_AT_ONCE = struct.pack("ii", 1, 0)
"""SO_LINGER: the connection ends with a reset, as after a crash."""


def lose_an_answer(url: str, params: dict[str, str], moments: random.Random) -> str:
    """Send the reader's request and go away at a random moment; how far it came."""
    address = urlsplit(url)
    assert address.hostname is not None
    assert address.port is not None
    request = f"GET /api/v1/timing?{urlencode(params)} HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n"
    with socket.create_connection((address.hostname, address.port)) as connection:
        if moments.random() < 0.5:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_ONCE)
        if moments.random() < 0.2:
            connection.sendall(request.encode()[: moments.randrange(len(request))])
            return "asked in part"
        connection.sendall(request.encode())
        if moments.random() < 0.3:
            connection.recv(moments.randrange(1, 200))
            return "answered in part"
        time.sleep(moments.uniform(0, 0.004))
        return "asked"


def test_lost_answers_lose_nothing(tmp_path: Path) -> None:
    """Readers whose connection breaks at random moments, most of them after the interval was
    ended: their intervals have every event, once."""
    moments = random.Random(7)
    with start_sidecar(tmp_path) as sidecar, load(sidecar.socket) as trainer:
        readers = [Reader(sidecar.url, "loop"), Reader(sidecar.url, "loop", "m-1")]
        happened: Counter[str] = Counter()
        progressed(sidecar)
        for turn in range(ROUNDS):
            reader = readers[turn % 2]
            happened[lose_an_answer(sidecar.url, reader.params, moments)] += 1
            if moments.random() < 0.3:
                assert reader.read()
        assert len(happened) == 3
        report = trainer.tell("stop")
        assert_all_applied(sidecar, report)
        for reader in readers:
            reader.finish()
            assert reader.answers > 10
            assert reader.incomplete == 0
            assert_adds_up(reader, report)
        assert_smooth(report)
        trainer.close()


def test_request_that_is_overtaken_takes_nothing_with_it(tmp_path: Path) -> None:
    """A reader that gave up waiting asks again, is answered, and the first request is served
    only then: nobody hears that answer, and all of it is in the interval after the one that was
    heard."""
    with start_sidecar(tmp_path) as sidecar, load(sidecar.socket) as trainer:
        reader, forgotten = Reader(sidecar.url, "loop"), Reader(sidecar.url, "loop")
        for _ in range(5):
            progressed(sidecar)
            forgotten.params = dict(reader.params)
            assert reader.read()
            progressed(sidecar)
            assert forgotten.read()
        report = trainer.tell("stop")
        assert_all_applied(sidecar, report)
        reader.finish()
        assert_adds_up(reader, report)
        assert reader.incomplete == 0
        trainer.close()
