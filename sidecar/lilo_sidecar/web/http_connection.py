"""One reader's HTTP connection, and the time that it is given for each thing it does."""

from __future__ import annotations

import enum
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Final

import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.trio.worker_context import WorkerContext
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..intake.throttle import Throttle
from .http1 import Http1
from .untaken import MOMENT, Untaken

HEAD_TIMEOUT: Final = 5.0
"""Seconds until the first byte of a connection, and from a request's first byte to the end of
its head: clients send a head in one piece."""
ANSWER_TIMEOUT: Final = 10.0
"""Seconds for one answer to be taken: the largest has a few hundred kB."""
KEEP_ALIVE_TIMEOUT: Final = 30.0
"""Seconds that a connection may idle between requests. A poller's interval is shorter, so that it
never finds its connection closed under it."""
GRACEFUL_TIMEOUT: Final = 1.0
"""Seconds for answers under way, at shutdown and when the client stops sending; and for a client
to hang up after its last answer."""
_MOMENT: Final = 0.001
"""Seconds in which a client cannot be told from one that takes its answer at once."""
_READ_BYTES: Final = 2 * 1024
"""A request's head, mostly. What of the requests behind it comes along is held until their turn;
the rest stays in the system's buffers, whose size is bounded, until then."""


class _Phase(enum.Enum):
    """What a connection is doing."""

    NEW = "has sent nothing yet"
    HEAD = "sends a request's head"
    ANSWER = "is answered"
    IDLE = "was answered and may ask again"
    PARTING = "is over but for the last answer"


_TIMEOUTS: Final = {
    _Phase.NEW: HEAD_TIMEOUT,
    _Phase.HEAD: HEAD_TIMEOUT,
    _Phase.ANSWER: ANSWER_TIMEOUT,
    _Phase.IDLE: KEEP_ALIVE_TIMEOUT,
    _Phase.PARTING: GRACEFUL_TIMEOUT,
}


class HttpConnection:
    """Serves one connection. Everything is on trio's one thread.

    What the client sends is read only as fast as it is answered, one request after the other;
    every phase ends in time, and with it the connection.
    """

    def __init__(
        self,
        app: ASGIApp,
        config: Config,
        context: WorkerContext,
        stream: trio.SocketStream,
        throttle: Throttle,
        untaken: Untaken,
        evict: Callable[[HttpConnection], None],
    ) -> None:
        """``evict`` is called for a client whose answer others wait for the room of."""
        self.busy_since = trio.current_time()
        """Since when requests are being answered one after the other, without the client being
        waited for in between, but for the time that they wait for others; of no meaning while it
        is quiet."""
        self.quiet_since: float | None = self.busy_since
        """Since when no request is being answered or waits to be; None while there is one."""
        self.timed_out = False
        """Whether the client took too long over a request, or over taking its answer."""
        self._app = app
        self._config = config
        self._context = context
        self._stream = stream
        self._throttle = throttle
        self._untaken = untaken
        self._give_up = partial(evict, self)
        self._has_requests = False
        self._sending = trio.Lock()
        self._sending_since: float | None = None
        self._whole = trio.CancelScope()
        self._reading = trio.CancelScope()
        self._phase = _Phase.NEW
        self._told_to_close = False

    @property
    def is_worked_on(self) -> bool:
        """Whether the next step of an answer is the sidecar's, as far as can be told: a piece that
        has only just been handed to the system is hardly held up."""
        if self.quiet_since is not None:
            return False
        since = self._sending_since
        return since is None or trio.current_time() - since < _MOMENT

    @property
    def is_fresh(self) -> bool:
        """Whether it is open for a moment only, and has sent nothing."""
        if self._phase is not _Phase.NEW or self.quiet_since is None:
            return False
        return trio.current_time() - self.quiet_since < MOMENT

    def close(self) -> None:
        """End it at once, whatever it is doing."""
        self._told_to_close = True
        self._whole.cancel()

    async def run(self) -> None:
        """Serve until the connection is at its end. The stream is the caller's to close."""
        self._enter(_Phase.NEW)
        with self._whole:
            async with trio.open_nursery() as requests:
                protocol = Http1(
                    *(self._answer, self._config, self._context, requests, self._send),
                    throttle=self._throttle,
                )
                hung_up = await self._read(protocol)
                if hung_up:
                    self._enter(_Phase.PARTING)
                await protocol.handle(Closed())
            await self._part(hung_up)
        if self._whole.cancelled_caught and not self._told_to_close:
            self.timed_out = self._phase in (_Phase.NEW, _Phase.HEAD, _Phase.ANSWER)

    async def _read(self, protocol: Http1) -> bool:
        """Take requests until the client has no more, or the protocol has had enough; whether it
        was the client."""
        with self._reading:
            while data := await self._receive():
                self._has_requests = True
                try:
                    await protocol.handle(RawData(data))
                finally:
                    self._has_requests = False
                self._note_quiet()
                if self._phase in (_Phase.NEW, _Phase.IDLE) and protocol.mid_head:
                    self._enter(_Phase.HEAD)  # and no longer, however many bytes are to come
            await protocol.handle(RawData(b""))
            return True
        return False

    async def _receive(self) -> bytes:
        try:
            return bytes(await self._stream.receive_some(_READ_BYTES))
        except trio.BrokenResourceError:  # it was reset
            return b""

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The application's answer to one request, made when there is room for it. Its head goes
        with its body: nothing is sent of an answer before all of it counts."""
        head: list[Message] = []

        async def send_whole(message: Message) -> None:
            if message["type"] == "http.response.start":
                head.append(message)
                return
            with self._untaken.holding(message.get("body", b""), self._give_up):
                while head:
                    await send(head.pop())
                await send(message)

        busy_for = trio.current_time() - self.busy_since
        self.busy_since = inf  # the wait is others' doing
        await self._untaken.room()
        self.busy_since = trio.current_time() - busy_for
        await self._app(scope, receive, send_whole)

    async def _send(self, event: Event) -> None:
        """What the protocol has for the client, or about it."""
        match event:
            case RawData():
                async with self._sending:
                    self._sending_since = trio.current_time()
                    try:
                        await self._stream.send_all(event.data)
                    except trio.BrokenResourceError:  # the client is gone
                        self._reading.cancel()
                    finally:
                        self._sending_since = None
            case Closed():
                self._reading.cancel()
            case Updated() if self._phase is not _Phase.PARTING:
                self._enter(_Phase.IDLE if event.idle else _Phase.ANSWER)

    async def _part(self, hung_up: bool) -> None:
        """Say that this was the last answer, and wait for the client to hang up: an end with
        something of it unread would be a reset, which may overtake the answer."""
        self._enter(_Phase.PARTING)
        try:
            await self._stream.send_eof()
            while not hung_up:
                hung_up = not await self._stream.receive_some(_READ_BYTES)
        except trio.BrokenResourceError:
            pass  # it is gone already

    def _enter(self, phase: _Phase) -> None:
        now = trio.current_time()
        self._phase = phase
        self._whole.deadline = now + _TIMEOUTS[phase]
        if phase is _Phase.ANSWER and self.quiet_since is not None:
            self.busy_since, self.quiet_since = now, None
        else:
            self._note_quiet()

    def _note_quiet(self) -> None:
        """It is the client's turn, unless it has sent the next request already."""
        answering = self._phase is _Phase.ANSWER or self._has_requests
        if self.quiet_since is None and not answering:
            self.quiet_since = trio.current_time()
