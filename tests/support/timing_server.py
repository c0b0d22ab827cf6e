"""A small HTTP server that answers like a control plane or a sidecar, or as badly as told."""

from __future__ import annotations

import contextlib
import functools
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

TIMEOUT = 20.0
"""Seconds until a test that waits gives up."""


@dataclass(frozen=True)
class Request:
    """One that arrived. Header names are lower-case."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    connection: tuple[str, int]


@dataclass(frozen=True)
class Answer:
    """What to send back."""

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    lost: bool = False
    """The connection breaks before any of it has arrived."""

    def torn(self) -> Answer:
        """The same, where the connection breaks before its last byte."""
        return replace(
            self,
            body=self.body[:-1],
            headers={**self.headers, "Content-Length": str(len(self.body)), "Connection": "close"},
        )


Answering = Callable[[Request], Answer]


def phase(count: int, total_s: float, max_s: float, mean_batch: float = 1.0) -> dict[str, float]:
    """One entry of ``phases``."""
    mean_s = total_s / count if count else 0.0
    return {
        "count": count,
        "total_s": total_s,
        "mean_s": mean_s,
        "max_s": max_s,
        "mean_batch": mean_batch,
    }


def timing(phases: Mapping[str, Any] | None = None, **sections: Any) -> dict[str, Any]:
    """A whole timing answer; without phases, with one execution of 2 s."""
    if phases is None:
        phases = {"forward_backward.execute": phase(1, 2.0, 2.0)}
    return {
        "model_id": "m",
        "uptime_s": 9.0,
        "phases": phases,
        "gauges": {"trainer.backend_ready_s": 1.5},
        "delivery": {"applied": 3, "dropped": 0},
        **sections,
    }


def ok(content: object) -> Answer:
    """A JSON answer with status 200."""
    return Answer(json.dumps(content).encode())


def error(status: int, code: str = "code", message: str = "the message") -> Answer:
    """An error answer of ours."""
    return Answer(json.dumps({"error": code, "message": message}).encode(), status)


class TimingServer:
    """Answers every request with ``answering``, on a thread for each connection."""

    def __init__(self, answering: Answering) -> None:
        self.answering = answering
        self.requests: list[Request] = []
        self.held = threading.Event()
        self.held.set()
        self._arrived = threading.Condition()
        self._ended: set[tuple[str, int]] = set()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 64 * 1024  # an answer in one piece: two wait for an acknowledgement

            def do_GET(self) -> None:
                request = server.note(self)
                server.held.wait(TIMEOUT)
                answer = server.answering(request)
                if answer.lost:
                    self.close_connection = True
                    return
                with contextlib.suppress(OSError):  # the client left
                    self.send_response(answer.status)
                    headers = {"Content-Length": str(len(answer.body)), **answer.headers}
                    for name, value in headers.items():
                        self.send_header(name, value)
                    self.end_headers()
                    if self.command != "HEAD":
                        self.wfile.write(answer.body)

            do_HEAD = do_GET  # noqa: N815 - the base class's name

            def log_message(self, *args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False

            def process_request_thread(self, request: Any, client_address: Any) -> None:
                super().process_request_thread(request, client_address)
                server.note_end(client_address)

            def handle_error(self, request: object, client_address: object) -> None:
                pass  # a client that left

        self._http = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        self._thread.start()

    def note(self, handler: BaseHTTPRequestHandler) -> Request:
        """Record a request."""
        parts = urlsplit(handler.path)
        request = Request(
            handler.command,
            parts.path,
            dict(parse_qsl(parts.query, keep_blank_values=True)),
            {name.lower(): value for name, value in handler.headers.items()},
            handler.client_address,
        )
        with self._arrived:
            self.requests.append(request)
            self._arrived.notify_all()
        return request

    def note_end(self, connection: tuple[str, int]) -> None:
        """Record that the client closed a connection."""
        with self._arrived:
            self._ended.add(connection)
            self._arrived.notify_all()

    def wait_for_end(self, connection: tuple[str, int]) -> None:
        """Until the client has closed that connection."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: connection in self._ended, TIMEOUT)

    def wait_for(self, count: int) -> Request:
        """The ``count``-th request, once it is there."""
        with self._arrived:
            arrived = self._arrived.wait_for(lambda: len(self.requests) >= count, TIMEOUT)
        assert arrived, f"{len(self.requests)} requests, not {count}"
        return self.requests[count - 1]

    def hold(self) -> None:
        """Answer nothing from now on, until `release`."""
        self.held.clear()

    def release(self) -> None:
        """Answer what was held, and all later ones."""
        self.held.set()

    def close(self) -> None:
        """Answer no more."""
        self.release()
        self._http.shutdown()
        self._http.server_close()


@contextlib.contextmanager
def timing_server(answering: Answering | None = None) -> Iterator[TimingServer]:
    """A server that gives the same timing to everybody, or what ``answering`` says."""
    server = TimingServer(answering or (lambda _: ok(timing())))
    try:
        yield server
    finally:
        server.close()


@contextlib.contextmanager
def silent_server() -> Iterator[str]:
    """The URL of a server that accepts connections and never says anything."""
    with socket.create_server(("127.0.0.1", 0), backlog=16) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextlib.contextmanager
def speaking_server(speak: Callable[[socket.socket], None]) -> Iterator[str]:
    """The URL of a server that says whatever ``speak`` sends, on a thread for each connection."""

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):  # the client left
            speak(connection)

    def accept() -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)  # which ends a waiting accept


def unused_url() -> str:
    """A URL where nothing listens, and nobody else can while this process lives."""
    return f"http://127.0.0.1:{_taken().getsockname()[1]}"


@functools.cache
def _taken() -> socket.socket:
    """Bound, and never listening: its port refuses connections, and is given to nobody else."""
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    return taken
