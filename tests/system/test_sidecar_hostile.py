"""Hostile and broken input, on the socket and over HTTP: it costs its sender the connection, and
nobody else anything."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest

from lilo_engine_hook import wire
from support.feed import span
from support.producer import Producer, hello_frame
from support.sidecar import SidecarProcess
from support.unthrottled import start_unthrottled

MAX_GROWTH = 10 * 1024 * 1024
"""Bytes that no input may make the sidecar grow by."""
MAX_CONNECTIONS = 32


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    """One sidecar takes all of this in its stride."""
    with start_unthrottled(tmp_path_factory.mktemp("hostile")) as running:
        yield running


@pytest.fixture(scope="module")
def good(sidecar: SidecarProcess) -> Iterator[Producer]:
    """A producer beside them, whose counts must stay exact."""
    with Producer(sidecar.socket, "good") as producer:
        producer.greet()
        producer.work(["good"])
        yield producer


def frame(payload: bytes) -> bytes:
    """A frame around anything."""
    return len(payload).to_bytes(4, "big") + payload


def packed(value: object) -> bytes:
    """A frame of any msgpack value."""
    return frame(msgpack.packb(value))


def batch(*events: object) -> bytes:
    """A batch of anything."""
    return packed(["batch", 1, 0, 0, list(events)])


def claimed_arrays() -> bytes:
    """Arrays in arrays, each of which claims the most entries allowed."""
    return b"\xdc\x04\x00" * (wire.MAX_FRAME // 3)


GOOD_SPAN: list[Any] = [5, ["m"], "fb", "gpu", 0.0, 1.0, None, None, None, None, None]


def spoilt(index: int, value: object) -> bytes:
    """A batch of one span with one field replaced."""
    return batch([*GOOD_SPAN[:index], value, *GOOD_SPAN[index + 1 :]])


BEFORE_HELLO = {
    "batch before the hello": batch(GOOD_SPAN),
    "oversized frame": b"\xff\xff\xff\xff" + b"x" * 100,
    "empty frame": b"\x00\x00\x00\x00",
    "http": b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
    "array of 4 Gi entries": frame(b"\xdd\xff\xff\xff\xff"),
    "map of 4 Gi entries": frame(b"\xdf\xff\xff\xff\xff"),
    "string of 4 GiB": frame(b"\xdb\xff\xff\xff\xff"),
    "binary of 4 GiB": frame(b"\xc6\xff\xff\xff\xff"),
    "extension of 4 GiB": frame(b"\xc9\xff\xff\xff\xff\x01"),
    "nesting of 5,000": frame(b"\x91" * 5000 + b"\xc0"),
    "arrays in arrays": frame(claimed_arrays()),
    "no message": packed(7),
    "unknown message": packed(["what", 1]),
    "answer of a sidecar": packed(["ack", 1]),
    "unknown version": packed(["hello", 99, "boot", None, 1, 0.0, "engine"]),
    "version that is a truth": packed(["hello", True, "boot", None, 1, 0.0, "engine"]),
    "unknown role": packed(["hello", wire.VERSION, "boot", None, 1, 0.0, "king"]),
    "endless boot id": packed(["hello", wire.VERSION, "b" * 1000, None, 1, 0.0, "engine"]),
    "start that is no number": packed(
        ["hello", wire.VERSION, "b", None, 1, float("nan"), "engine"]
    ),
    "two values in a frame": frame(msgpack.packb(["ack", 1]) * 2),
    "string that is no UTF-8": frame(b"\x92\xa5hell\xff\x01"),
}
AFTER_HELLO = {
    "second hello": hello_frame("again"),
    "empty event": batch([]),
    "event that is a string": batch("span"),
    "unknown event": batch([99, 0.0]),
    "event without fields": batch([5]),
    "batch from number 0": packed(["batch", 0, 0, 0, []]),
    "batch from a number over all": packed(["batch", 2**63, 0, 0, []]),
    "negative count": packed(["batch", 1, -1, 0, []]),
    "events that are no list": packed(["batch", 1, 0, 0, 5]),
    "models that are no list": spoilt(1, "m"),
    "no models": spoilt(1, []),
    "model that is a number": spoilt(1, [5]),
    "endless model id": spoilt(1, ["m" * 257]),
    "endless name": spoilt(2, "n" * 81),
    "time that is a string": spoilt(4, "now"),
    "time that is no number": spoilt(4, float("nan")),
    "endless time": spoilt(5, float("inf")),
    "truth for a time": spoilt(5, True),
    "ok that is a number": spoilt(9, 1),
    "too many events": packed(["batch", 1, 0, 0, [GOOD_SPAN] * 1025]),
}


def attempt(sidecar: SidecarProcess, good: Producer, act: Callable[[Producer], None]) -> None:
    """Do something hostile on a connection of its own, and see that it is counted once, logged
    in one line, and without effect on memory and on the good producer."""
    before, logged, memory = sidecar.health(), len(sidecar.log.lines), sidecar.rss_bytes()
    with Producer(sidecar.socket, "hostile") as producer:
        act(producer)
    after = sidecar.wait_for(lambda health: health["ingest"]["connections"] == 1)
    assert after["ingest"]["protocol_errors"] == before["ingest"]["protocol_errors"] + 1
    assert after["ingest"]["faults"] == 0
    assert sidecar.rss_bytes() - memory < MAX_GROWTH
    sidecar.log.wait_for(lambda line: len(sidecar.log.lines) == logged + 1)
    assert good.work(["good"]) == good.sent
    execute = sidecar.timing("good")["phases"]["forward_backward.execute"]
    assert execute["count"] == execute["total_s"] == good.sent


@pytest.mark.parametrize("name", BEFORE_HELLO)
def test_bad_first_bytes_end_that_connection(
    sidecar: SidecarProcess, good: Producer, name: str
) -> None:
    """What is no hello is refused, and the connection closed."""

    def act(producer: Producer) -> None:
        producer.socket.sendall(BEFORE_HELLO[name])
        producer.refused()

    attempt(sidecar, good, act)


@pytest.mark.parametrize("name", AFTER_HELLO)
def test_bad_batch_ends_that_connection(sidecar: SidecarProcess, good: Producer, name: str) -> None:
    """A producer that was welcome is not once it breaks the format; nothing of the bad batch
    is in the figures."""

    def act(producer: Producer) -> None:
        producer.greet()
        producer.socket.sendall(AFTER_HELLO[name])
        producer.refused()

    attempt(sidecar, good, act)
    assert sidecar.timing("m")["phases"] == {}


@pytest.mark.parametrize("whole", [b"", hello_frame("cut")])
def test_stream_that_ends_within_a_frame_is_an_error(
    sidecar: SidecarProcess, good: Producer, whole: bytes
) -> None:
    """A truncated frame is counted like any other broken one."""
    attempt(sidecar, good, lambda producer: producer.socket.sendall(whole + hello_frame()[:-3]))


def test_names_of_a_producer_are_bounded(sidecar: SidecarProcess, good: Producer) -> None:
    """Of a million names, none after the 256th gets in; what came before stays applied and
    acknowledged."""
    heard: list[wire.Message | None] = []

    def act(producer: Producer) -> None:
        producer.greet("backend")
        names = (f"name {number}" for number in range(1_000_000))
        lane = producer.send(span(["many"], 0.0, 1.0, next(names)))
        for _ in range(254):
            lane = producer.send(span(["many"], 0.0, 1.0, next(names)))
        assert lane == 255
        producer.post(span(["many"], 0.0, 1.0, next(names)))
        heard.append(producer.hear())
        heard.append(producer.hear())

    attempt(sidecar, good, act)
    (refusal, end) = heard
    assert isinstance(refusal, wire.Refusal)
    assert (refusal.code, end) == ("names", None)
    assert len(sidecar.timing("many")["phases"]) == 255


def test_answers_before_the_offence_are_sent_first(sidecar: SidecarProcess, good: Producer) -> None:
    """A producer learns which of its batches was applied before it is told off for the next."""

    def act(producer: Producer) -> None:
        producer.socket.sendall(hello_frame("fresh") + packed(["batch", 1, 0, 0, []]) + b"\0" * 4)
        assert producer.hear() == wire.Ack(0)
        assert producer.hear() == wire.Ack(0)
        refusal = producer.hear()
        assert isinstance(refusal, wire.Refusal)
        assert refusal.code == "frame_size"
        assert producer.hear() is None

    attempt(sidecar, good, act)


def test_bytes_one_by_one_are_as_good_as_any(sidecar: SidecarProcess, good: Producer) -> None:
    """However the stream is cut, the messages in it are the same."""
    before = sidecar.health()["ingest"]["protocol_errors"]
    with Producer(sidecar.socket, "slow") as producer:
        packed_span = wire.encode_event(span(["slow"], 0.0, 1.0))
        for byte in hello_frame("slow", "backend") + wire.encode_batch(
            1, 0, 0, wire.join([packed_span])
        ):
            producer.socket.sendall(bytes([byte]))
        assert [producer.acknowledged(), producer.acknowledged()] == [0, 1]
        assert sidecar.timing("slow")["phases"]["forward_backward.execute"]["count"] == 1
        assert sidecar.health()["ingest"]["protocol_errors"] == before


def test_connections_are_bounded(sidecar: SidecarProcess, good: Producer) -> None:
    """One over the bound is told so and counted; there is room again as soon as one leaves."""
    sidecar.wait_for(lambda health: health["ingest"]["connections"] == 1)
    others = [Producer(sidecar.socket, f"other {number}") for number in range(MAX_CONNECTIONS - 1)]
    for other in others:
        other.greet("backend")
    with Producer(sidecar.socket, "one more") as over:
        assert over.refused() == "busy"
    ingest = sidecar.health()["ingest"]
    assert (ingest["connections"], ingest["refused_connections"]) == (MAX_CONNECTIONS, 1)
    others[0].close()
    with Producer(sidecar.socket, "late") as late:
        assert late.greet("backend") == 0
    for other in others[1:]:
        other.close()


# --- HTTP ----------------------------------------------------------------------------------

UPGRADE = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\n"
BAD_REQUESTS = {
    "no HTTP": b"\x00" * 100,
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "endless head": b"GET /" + b"a" * 100_000,
    "websocket without a key": UPGRADE + b"upgrade: websocket\r\n\r\n",
    "websocket of garbage": UPGRADE
    + b"upgrade: websocket\r\nsec-websocket-version: 13\r\n"
    + b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    + b"\xff" * 50,
    "HTTP/2 of garbage": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 100,
    "HTTP/2 upgrade": UPGRADE + b"upgrade: h2c\r\nhttp2-settings: !!!\r\n\r\n",
    "bad chunk": b"GET /healthz HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzzz\r\n",
    "body that never comes": b"GET /healthz HTTP/1.1\r\nhost: x\r\ncontent-length: 999\r\n\r\n",
    "many requests at once": b"GET / HTTP/1.1\r\nhost: x\r\n\r\n" * 200,
}


@pytest.mark.parametrize("name", BAD_REQUESTS)
def test_bad_request_ends_at_most_its_connection(
    sidecar: SidecarProcess, good: Producer, name: str
) -> None:
    """Whatever is sent to the HTTP port, others are answered before and after, and a
    connection that was open stays open."""
    address = ("127.0.0.1", int(sidecar.url.rsplit(":", 1)[1]))
    with socket.create_connection(address) as other:
        other.sendall(b"GET /heal")
        with socket.create_connection(address) as hostile:
            hostile.settimeout(20)
            # The server may hang up at any point of it: in the middle of sending, too.
            with contextlib.suppress(OSError):
                hostile.sendall(BAD_REQUESTS[name])
                hostile.shutdown(socket.SHUT_WR)
                while hostile.recv(65536):
                    pass
        other.sendall(b"thz HTTP/1.1\r\nhost: x\r\n\r\n")
        other.settimeout(20)
        assert other.recv(65536).startswith(b"HTTP/1.1 200 ")
    assert good.work(["good"]) == good.sent
    assert sidecar.health()["status"] == "ok"


def test_closed_connections_are_let_go_of(sidecar: SidecarProcess) -> None:
    """Probes of the port that send nothing do not use up the room for readers."""
    address = ("127.0.0.1", int(sidecar.url.rsplit(":", 1)[1]))
    descriptors = Path(f"/proc/{sidecar.process.pid}/fd")
    for _ in range(20):
        for _ in range(10):
            socket.create_connection(address).close()
        assert sidecar.health()["status"] == "ok"
    sidecar.wait_for(lambda _: len(list(descriptors.iterdir())) < 100)
