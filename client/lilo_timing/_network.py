"""The network for blocking requests, with one limit on the time for all of a request.

httpx's own timeouts are for each wait: a server that sends a header, or an interim answer, every
second keeps within them for ever. Here a request carries a `TimeLeft`, which shrinks as time goes
by, and every wait on its connection is for what is left of it.
"""

from __future__ import annotations

import os
import socket
import ssl
import threading
import time
from collections.abc import Iterable
from typing import Any, Final, cast
from urllib.request import getproxies, proxy_bypass

import httpcore
import httpx

from ._http import CONNECTION_IDLE


class TimeLeft(float):
    """A timeout in seconds that is used up as time goes by. A number for whoever does not know
    it: what it was at first."""

    deadline: float
    """Of time.monotonic."""

    @classmethod
    def until(cls, deadline: float) -> TimeLeft:
        """What is left until then."""
        timeout = cls(max(deadline - time.monotonic(), 0.0))
        timeout.deadline = deadline
        return timeout


def _left(timeout: float | None, late: type[httpcore.TimeoutException]) -> float | None:
    """Seconds that the next wait may take. Raises ``late`` if none are left: where there is
    always something to read, no wait would."""
    if not isinstance(timeout, TimeLeft):
        return timeout
    left = timeout.deadline - time.monotonic()
    if left <= 0:
        raise late("the time for all of the request is over")
    return left


class _Stream(httpcore.NetworkStream):
    """A connection whose waits end when their request's time does."""

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _left(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _left(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        left = _left(timeout, httpcore.ConnectTimeout)
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, left))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _Backend(httpcore.NetworkBackend):
    """Connects within a request's time, to whichever of the host's addresses answers. Looking up
    the host's name takes as long as the system lets it."""

    def __init__(self) -> None:
        self._backend = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        options = list(socket_options or ())
        addresses = list(dict.fromkeys(str(address[0]) for *_, address in found))
        for number, address in enumerate(addresses, 1):
            left = _left(timeout, httpcore.ConnectTimeout)
            try:
                stream = self._backend.connect_tcp(address, port, left, local_address, options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if number == len(addresses):
                    raise
            else:
                return _Stream(stream)
        raise httpcore.ConnectError("the host has no address")

    def sleep(self, seconds: float) -> None:
        self._backend.sleep(seconds)


class Network:
    """The connections of this process, kept for its next requests. Any thread. A forked child
    makes its own: two processes must not write on one connection."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._proxies: dict[str, str] | None = None
        """By the scheme of the URLs that they are for; the environment's when first asked."""
        self._transports: dict[str | None, httpx.HTTPTransport] = {}
        """By the proxy, None being none."""
        self._inherited: object = None

    def transport(self, url: httpx.URL) -> httpx.BaseTransport:
        """For requests to that URL, by the proxy that the environment names for it, if any."""
        with self._lock:
            proxy = self._proxy(url)
            transport = self._transports.get(proxy)
            if transport is None:
                limits = httpx.Limits(keepalive_expiry=CONNECTION_IDLE)
                transport = httpx.HTTPTransport(limits=limits, proxy=proxy)
                # httpx has no parameter for it, though httpcore has one.
                cast("Any", transport)._pool._network_backend = _Backend()
                self._transports[proxy] = transport
            return transport

    def forget(self) -> None:
        """After a fork, in the child: a fresh lock, since the one here may be held for ever, and
        no connections. The parent's are kept, unused: letting go of them would close them."""
        self._lock = threading.Lock()
        self._inherited, self._transports = self._transports, {}

    def _proxy(self, url: httpx.URL) -> str | None:
        if self._proxies is None:
            self._proxies = getproxies()
        proxy = self._proxies.get(url.scheme) or self._proxies.get("all")
        if not proxy or proxy_bypass(url.host) or proxy_bypass(url.netloc.decode("ascii")):
            return None
        return proxy if "://" in proxy else f"http://{proxy}"


network: Final = Network()
os.register_at_fork(after_in_child=network.forget)
