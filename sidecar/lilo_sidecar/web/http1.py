"""HTTP/1.1 as hypercorn speaks it, without what readers of figures have no use for: HTTP/2,
websockets, and requests with bodies. What is not spoken needs no bounds."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

import h11
import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState, LifespanState
from starlette.types import ASGIApp, Message

from ..faults import described
from ..intake.throttle import Throttle
from .answers import error_answer

MAX_HEAD: Final = 16 * 1024
"""Bytes of a request's line and headers."""
_VERSIONS: Final = (b"1.0", b"1.1")
_HEAD_TOO_LARGE: Final = 431

_log = logging.getLogger("lilo_sidecar.http")


def http_config() -> Config:
    """What hypercorn is told."""
    config = Config()
    config.h11_max_incomplete_size = MAX_HEAD
    config.include_server_header = False
    config.errorlog = _log
    return config


class Http1(H11Protocol):
    """One connection's protocol; hypercorn's, but for the requests that it would let grow.

    After `Closed` was sent nothing more is to be read from the client, and what is being answered
    is the last thing that is.

    An offer to upgrade is declined by not taking it up, as RFC 9110 has it (7.8): whoever makes
    it gets the answer of HTTP/1.1. A request that is none is the sender's fault and never a 5xx.
    """

    def __init__(
        self,
        app: ASGIApp,
        config: Config,
        context: WorkerContext,
        nursery: trio.Nursery,
        send: Callable[[Event], Awaitable[None]],
        throttle: Throttle,
    ) -> None:
        super().__init__(
            app,  # type: ignore[arg-type]  # it is only handed to `_Requests`
            config,
            context,
            _Requests(nursery, throttle),  # type: ignore[arg-type]  # without what upgrades would need
            ConnectionState(LifespanState({})),
            False,
            None,
            None,
            send,
        )
        self.connection = _Parser(h11.SERVER, max_incomplete_event_size=MAX_HEAD)

    @property
    def mid_head(self) -> bool:
        """Whether a part of the next request has arrived."""
        return bool(self.connection.trailing_data[0])

    async def _check_protocol(self, event: h11.Request) -> None:
        """HTTP/1.1 it is, whatever else is offered."""

    async def _create_stream(self, request: h11.Request) -> None:
        if request.http_version not in _VERSIONS:
            await self._send_error_response(400)
            await self.send(Closed())
            return
        headers = [(name, value) for name, value in request.headers if name != b"upgrade"]
        await super()._create_stream(
            h11.Request(
                method=request.method,
                target=request.target,
                headers=headers,
                http_version=request.http_version,
            )
        )
        if _has_body(request):
            # Whatever follows is not looked at: in chunks of a byte, taking it apart would cost
            # everybody's time. The answer says that the connection ends with it.
            self.keep_alive_requests = self.config.keep_alive_max_requests
            await self.send(Closed())
            await trio.lowlevel.checkpoint()

    async def _send_error_response(self, status_code: int) -> None:
        if self.stream is not None:
            return  # what is wrong came behind a request, whose answer is the last one
        if status_code == _HEAD_TOO_LARGE:
            message = f"the head of a request may have {MAX_HEAD} bytes"
            answer = error_answer(_HEAD_TOO_LARGE, "head_too_large", message)
        else:
            answer = error_answer(400, "bad_http", "this is no request of HTTP/1.1")
        await self._send_h11_event(
            h11.Response(
                status_code=answer.status_code,
                headers=[
                    *answer.raw_headers,
                    (b"connection", b"close"),
                    *self.config.response_headers("h11"),
                ],
            )
        )
        await self._send_h11_event(h11.Data(data=bytes(answer.body)))
        await self._send_h11_event(h11.EndOfMessage())


class _Parser(h11.Connection):
    """h11 bounds a head that is not whole yet: one that arrives with its end is bounded here."""

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        before = len(self.trailing_data[0])
        event = super().next_event()
        if isinstance(event, h11.Request) and before - len(self.trailing_data[0]) > MAX_HEAD:
            raise h11.RemoteProtocolError("too long", error_status_hint=_HEAD_TOO_LARGE)
        return event


def _has_body(request: h11.Request) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0") != b"")
        for name, value in request.headers
    )


class _Requests:
    """Runs the application for each request. It sees an empty body at once, whatever is sent."""

    def __init__(self, nursery: trio.Nursery, throttle: Throttle) -> None:
        self._nursery = nursery
        self._throttle = throttle

    async def spawn_app(
        self,
        app: ASGIApp,
        config: Config,
        scope: Any,
        send: Callable[[Message | None], Awaitable[None]],
    ) -> Callable[[Message], Awaitable[None]]:
        """Start one; what is returned takes what the client sends from then on."""
        disconnected = trio.Event()
        heard = False

        async def receive() -> Message:
            nonlocal heard
            if not heard:
                heard = True
                return {"type": "http.request", "body": b"", "more_body": False}
            await disconnected.wait()
            return {"type": "http.disconnect"}

        async def put(message: Message) -> None:
            if message["type"] == "http.disconnect":
                disconnected.set()

        async def answer() -> None:
            try:
                await app(scope, receive, send)
            except Exception as error:  # noqa: BLE001 - no request may end the server
                line = "a fault in answering a request: %s"
                self._throttle.tell(logging.ERROR, "answer", line, described(error))
            await send(None)  # a 500 of hypercorn's, if there was no answer

        self._nursery.start_soon(answer)
        return put
