"""Clients that send or hold without end, on the HTTP port: they cost their own connections, and
neither the sidecar's memory nor anybody else's answers."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lilo_engine_hook import wire
from support.feed import span
from support.producer import Producer
from support.sidecar import TIMEOUT, SidecarProcess, start_sidecar, wait_until

MAX_GROWTH = 10 * 1024 * 1024
"""Bytes that no client may make the sidecar grow by."""
MAX_CONNECTIONS = 128
CLIENTS = 8
_HEAD = b"GET /healthz HTTP/1.1\r\nhost: x\r\n"
FLOODS = {
    "body of 10 GB": (_HEAD + b"content-length: 10000000000\r\n\r\n", b"x" * 65536),
    "chunked body": (
        _HEAD + b"transfer-encoding: chunked\r\n\r\n",
        b"ffff\r\n" + b"x" * 65535 + b"\r\n",
    ),
    "chunks of a byte": (_HEAD + b"transfer-encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 10000),
    "body of a request for nothing": (
        b"POST /nowhere HTTP/1.1\r\nhost: x\r\ncontent-length: 10000000000\r\n\r\n",
        b"x" * 65536,
    ),
    "requests": (b"", (_HEAD + b"\r\n") * 1000),
    "head": (b"GET / HTTP/1.1\r\na: ", b"x" * 65536),
    "headers": (b"GET / HTTP/1.1\r\n", b"a: b\r\n" * 10000),
    "empty lines": (b"", b"\r\n" * 10000),
    "websocket frames": (
        _HEAD + b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
        b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        b"\x82\x7f\x00\x00\x00\x00\x00\x00\xff\xf6" + b"x" * 65526,
    ),
    "HTTP/2": (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" * 1000,
    ),
    "HTTP/2 upgraded to": (
        _HEAD + b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\n"
        b"http2-settings: AAMAAABk\r\n\r\n",
        b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" * 1000,
    ),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\xff" * 65536),
}


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    """One sidecar takes all of this in its stride."""
    with start_sidecar(tmp_path_factory.mktemp("floods")) as running:
        yield running


def connect(sidecar: SidecarProcess) -> socket.socket:
    """A client's connection."""
    address = ("127.0.0.1", int(sidecar.url.rsplit(":", 1)[1]))
    return socket.create_connection(address, timeout=TIMEOUT)


def descriptors(sidecar: SidecarProcess) -> int:
    """What it has open."""
    return len(list(Path(f"/proc/{sidecar.process.pid}/fd").iterdir()))


@pytest.mark.parametrize("name", FLOODS)
def test_client_that_sends_without_end(sidecar: SidecarProcess, name: str) -> None:
    """It is cut off soon, whether or not it reads what it is told; meanwhile others are answered,
    nothing is kept, and no answer is a 5xx."""
    head, part = FLOODS[name]
    open_before, memory = descriptors(sidecar), sidecar.rss_bytes()
    answers: list[bytes] = []
    ended = threading.Semaphore(0)

    def flood(reads: bool) -> None:
        with connect(sidecar) as client:
            reader = threading.Thread(target=read, args=(client,))
            if reads:
                reader.start()
            with contextlib.suppress(OSError):
                client.sendall(head)
                while True:
                    client.sendall(part)
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
            if reads:
                reader.join(TIMEOUT)
        ended.release()

    def read(client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                answers.append(data)

    clients = [threading.Thread(target=flood, args=(number % 2 == 0,)) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    with Producer(sidecar.socket, f"beside {name}") as producer:
        producer.greet("backend")
        while any(client.is_alive() for client in clients):
            assert sidecar.health()["status"] in ("ok", "waiting")
            assert producer.work() == producer.sent
            assert sidecar.rss_bytes() - memory < MAX_GROWTH
    assert all(ended.acquire(blocking=False) for _ in clients)
    assert b"HTTP/1.1 5" not in b"".join(answers)
    wait_until(lambda: descriptors(sidecar), lambda count: count <= open_before + 1)
    assert "fault" not in "".join(sidecar.log.lines)


def test_clients_that_never_read_cost_one_answer_each(sidecar: SidecarProcess) -> None:
    """However many requests they have sent: the next is answered when the one before is taken."""
    memory = sidecar.rss_bytes()
    with contextlib.ExitStack() as held:
        for _ in range(40):
            client = held.enter_context(connect(sidecar))
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n" * 900)
        for _ in range(20):
            assert sidecar.health()["status"] in ("ok", "waiting")
            assert sidecar.rss_bytes() - memory < MAX_GROWTH


@pytest.mark.parametrize("path", ["/api/v1/timing", "/api/v1/overview?after=0"])
def test_unread_answers_keep_nobody_out(sidecar: SidecarProcess, path: str) -> None:
    """More clients than there is room for, which send requests without end and never read, for the
    largest of answers: a newcomer waits a second at most, and nothing much is kept of them."""
    now = time.time()
    for boot in range(4):
        with Producer(sidecar.socket, f"large {path} {boot}") as producer:
            producer.greet("backend" if boot else "engine")
            for number in range(25):
                names = [f"{boot}-{number}-{each}".ljust(wire.MAX_NAME, "n") for each in range(10)]
                producer.send(*(span(["m"], now - 1.0, now, name) for name in names))
                models = [f"{number}-{each}".ljust(wire.MAX_NAME, "m") for each in range(10)]
                producer.send(*(span([model], now - 1.0, now) for model in 9 * models))
    size = len(sidecar.http.get(path).content)
    assert size * MAX_CONNECTIONS > 1.5 * MAX_GROWTH
    memory = sidecar.rss_bytes()
    request = f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
    with contextlib.ExitStack() as held:
        for _ in range(MAX_CONNECTIONS + 12):
            client = held.enter_context(connect(sidecar))
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            with contextlib.suppress(OSError):
                client.send(request * 200)
        begun = time.monotonic()
        answered = 0
        while time.monotonic() < begun + 4 or not answered:
            with connect(sidecar) as newcomer, contextlib.suppress(ConnectionError):
                newcomer.sendall(_HEAD + b"\r\n")
                answer = newcomer.recv(65536)
                assert answer.startswith(b"HTTP/1.1 200 ") or time.monotonic() < begun + 3
                answered += bool(answer)
            assert sidecar.rss_bytes() - memory < MAX_GROWTH
    wait_until(lambda: descriptors(sidecar), lambda count: count < 32)


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HT", _HEAD])
def test_held_connections_keep_nobody_out(sidecar: SidecarProcess, sent: bytes) -> None:
    """Three times as many as there is room for: every newcomer with a request is answered."""
    with contextlib.ExitStack() as held:
        for number in range(3 * MAX_CONNECTIONS):
            held.enter_context(connect(sidecar)).sendall(sent)
            if number % 32 == 0:
                with connect(sidecar) as newcomer:
                    newcomer.sendall(_HEAD + b"\r\n")
                    assert newcomer.recv(65536).startswith(b"HTTP/1.1 200 ")
        wait_until(lambda: descriptors(sidecar), lambda count: count < MAX_CONNECTIONS + 32)
