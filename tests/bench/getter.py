"""A reader with next to no cost of its own, which would hide the server's."""

from __future__ import annotations

import socket
import time
from typing import Final
from urllib.parse import urlsplit

_READ: Final = 1024 * 1024
_REQUESTS: Final = 500
"""On one connection: a server closes it after a thousand."""


class Getter:
    """One request, repeated on a connection that is kept."""

    def __init__(self, url: str, path: str = "/api/v1/timing?model_id=model-0") -> None:
        self._url = urlsplit(url)
        self.ask_for(path)
        self._connect()

    def ask_for(self, path: str) -> None:
        """From now on."""
        self._request = f"GET {path} HTTP/1.1\r\nHost: {self._url.netloc}\r\n\r\n".encode()

    def get(self) -> bytes:
        """The answer's body; an AssertionError if it is none of status 200."""
        if self._left == 0:
            self.close()
            self._connect()
        self._left -= 1
        self._socket.sendall(self._request)
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += self._read()
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), answer
        length = next(
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length")
        )
        while len(body) < length:
            body += self._read()
        return body

    def milliseconds(self) -> float:
        """That one request takes."""
        began = time.perf_counter()
        self.get()
        return 1000 * (time.perf_counter() - began)

    def close(self) -> None:
        self._socket.close()

    def _connect(self) -> None:
        address = (self._url.hostname, self._url.port)
        self._socket = socket.create_connection(address, timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._left = _REQUESTS

    def _read(self) -> bytes:
        data = self._socket.recv(_READ)
        assert data, "the server hung up"
        return data
