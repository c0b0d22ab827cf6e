"""The intake of events: accepts producers' connections and keeps their faults apart."""

from __future__ import annotations

import contextlib
import enum
import logging
import math
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import trio

from lilo_engine_hook import wire

from ..core.timing import Timing
from ..faults import described
from ..state.recorder import Recorder
from .connection import Connection, Ending
from .listening import EXHAUSTED, Listener
from .peers import Peers, peer_of
from .session import Session
from .throttle import Throttle

MAX_CONNECTIONS: Final = 32
"""Producers at once: an engine, a backend and their forks for each of several trainers in one
container. Each may hold one frame and one read, so all of them stay under 11 MiB."""
HELLO_TIMEOUT: Final = 10.0
"""Seconds for the hello, which a hook sends as soon as it is connected."""
ANSWER_TIMEOUT: Final = 10.0
"""Seconds for a producer to take an answer: a few bytes, of which its socket holds thousands."""
READS_PER_TURN: Final = 64
"""Pieces taken from a connection whose turn it is: 256 KiB, which is the largest message."""
GIVE_WAY: Final = 0.003
"""Seconds that a batch waits for readers' answers: some of them, so that readers without end do
not keep producers out."""
DRAIN_TIMEOUT: Final = 1.0
"""Seconds at shutdown for what was sent already."""
LOOK_INTERVAL: Final = 1.0
"""Seconds between looks whether the socket's file is still there."""
MAX_ACCEPTS: Final = 64
"""Connections accepted in one turn: a few milliseconds, after which all others get theirs."""
REFUSED_FOR_ROOM: Final = "busy"
"""The code of a refusal for which the producer is not to blame."""
REFUSED_PEER: Final = "peer"
"""The code of a refusal of the producer's user."""
_ACCEPT_PAUSE: Final = 0.1
"""Seconds until the next try when the process has run out of descriptors or memory."""

_log = logging.getLogger("lilo_sidecar.intake.ingest")


class _Accepted(enum.Enum):
    """How a turn of accepting ended."""

    ALL = "nobody waits any more"
    SOME = "there may be more"
    NO_ROOM = "the machine has no room for more"


@dataclass(frozen=True, slots=True)
class IngestStatistics:
    """The intake's own counts, since the daemon started."""

    connections: int
    """Open now."""
    protocol_errors: int
    """Connections closed for breaking the protocol."""
    refused_connections: int
    """Connections turned away for want of room."""
    refused_peers: int
    """Connections turned away because their user may not report."""
    faults: int
    """Connections closed by a fault of the sidecar's own; the log says where."""


class Ingest:
    """Serves producers on a listening Unix socket.

    Runs in trio on the daemon's one thread. Nothing that a connection sends ends anything but
    that connection.
    """

    def __init__(
        self,
        core: Recorder,
        on_trainer_ended: Callable[[Timing], None],
        allowed_uids: frozenset[int] = frozenset(),
    ) -> None:
        """``on_trainer_ended`` is given the last aggregate of every trainer that was replaced;
        ``allowed_uids`` are the users whose processes may report, beside one's own and root."""
        self._core = core
        self._on_trainer_ended = on_trainer_ended
        self._peers = Peers(allowed_uids)
        self._connections: dict[Connection, None] = {}
        """In the order they were accepted."""
        self._endings = dict.fromkeys(Ending, 0)
        self._throttle = Throttle(_log)
        self._nursery: trio.Nursery | None = None
        """Of the connections' tasks, while `run` runs."""
        self._others_wait: Callable[[], bool] = lambda: False

    def give_way_to(self, others_wait: Callable[[], bool]) -> None:
        """Whenever others wait, batches do, for a moment."""
        self._others_wait = others_wait

    def statistics(self) -> IngestStatistics:
        """The counts by now."""
        return IngestStatistics(
            connections=sum(connection.ending is None for connection in self._connections),
            protocol_errors=self._endings[Ending.PROTOCOL_ERROR],
            refused_connections=self._endings[Ending.REFUSED],
            refused_peers=self._endings[Ending.REFUSED_PEER],
            faults=self._endings[Ending.FAULT],
        )

    async def run(
        self,
        listener: Listener,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Accept and serve connections until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                task_status.started()
                while True:
                    with trio.move_on_after(LOOK_INTERVAL):
                        await trio.lowlevel.wait_readable(listener.socket)
                    match self._accept_waiting(listener, nursery):
                        case _Accepted.ALL:
                            listener.restore()
                        case _Accepted.SOME:
                            await trio.lowlevel.checkpoint()
                        case _Accepted.NO_ROOM:
                            listener.restore()
                            await trio.sleep(_ACCEPT_PAUSE)
                    self._throttle.settle()
        finally:
            self._nursery = None
            self._throttle.close()

    async def drain(self, listener: Listener) -> None:
        """Take in what producers have sent so far, for at most DRAIN_TIMEOUT seconds, and
        acknowledge it. `run` goes on beside it; without it there is nothing to take in."""
        if self._nursery is None:
            return
        with trio.move_on_after(DRAIN_TIMEOUT):
            while self._accept_waiting(listener, self._nursery) is _Accepted.SOME:
                await trio.lowlevel.checkpoint()
            # In turns: one that sends without end must not use up the others' time.
            while [connection for connection in list(self._connections) if connection.read()]:
                await trio.lowlevel.checkpoint()
        for connection in self._connections:
            connection.flush()

    def _accept_waiting(self, listener: Listener, nursery: trio.Nursery) -> _Accepted:
        """Accept those who wait, as far as one turn goes."""
        for _ in range(MAX_ACCEPTS):
            try:
                sock, _ = listener.socket.accept()
            except BlockingIOError:
                return _Accepted.ALL
            except ConnectionAbortedError:
                continue  # that producer went away before it was accepted
            except OSError as error:
                if error.errno not in EXHAUSTED:
                    raise
                self._throttle.tell(
                    *(logging.WARNING, "accept", "cannot accept connections for now: %s", error),
                    lines=1,
                )
                return _Accepted.NO_ROOM
            self._admit(sock, nursery)
        return _Accepted.SOME

    def _admit(self, sock: socket.socket, nursery: trio.Nursery) -> None:
        sock.setblocking(False)
        peer = peer_of(sock)
        objection = self._peers.objection(peer)
        if objection is not None:  # the log is left to `Peers`, which knows what it said already
            self._turn_away(sock, Ending.REFUSED_PEER, REFUSED_PEER, objection)
            return
        if self.statistics().connections >= MAX_CONNECTIONS:
            self._read_out()
        if self.statistics().connections >= MAX_CONNECTIONS:
            reason = f"{MAX_CONNECTIONS} producers are connected"
            self._throttle.tell(
                *(logging.WARNING, REFUSED_FOR_ROOM, "connection from pid %d refused: %s"),
                *(peer.pid, reason),
            )
            self._turn_away(sock, Ending.REFUSED, REFUSED_FOR_ROOM, reason)
            return

        def read_out_predecessors() -> None:
            self._read_out(before=connection)

        session = Session(self._core, read_out_predecessors, self._on_trainer_ended)
        connection = Connection(sock, peer, session, self._throttle)
        self._connections[connection] = None
        nursery.start_soon(self._serve, connection)

    def _turn_away(self, sock: socket.socket, ending: Ending, code: str, reason: str) -> None:
        """Say why and close, at once: however many come, they hold nothing of the sidecar's."""
        self._endings[ending] += 1
        with sock, contextlib.suppress(OSError):  # it may have gone already
            sock.send(wire.encode(wire.Refusal(code, reason)))

    def _read_out(self, before: Connection | None = None) -> None:
        """Take in all that producers sent who connected earlier and have hung up since, and let
        go of them: the newcomer may be the restart of a trainer that is among them."""
        for connection in list(self._connections):
            if connection is before:
                return
            if connection.ending is None and connection.hung_up:
                while connection.read():
                    pass

    async def _serve(self, connection: Connection) -> None:
        """One connection's task: waits, and leaves the work to the connection."""
        try:
            with trio.CancelScope(deadline=trio.current_time() + HELLO_TIMEOUT) as scope:
                while connection.ending is None:
                    await trio.lowlevel.wait_readable(connection.socket)
                    await self._give_way()
                    # More than a piece, or readers would hold up producers by their number.
                    for _ in range(READS_PER_TURN):
                        if not connection.read() or not self._others_wait():
                            break
                    if connection.greeted:
                        scope.deadline = math.inf
                    await self._answer(connection)
            if scope.cancelled_caught:
                # No word to the producer: it would take it for a complaint about its first batch.
                connection.fail("hello", f"no hello within {HELLO_TIMEOUT:.0f} s")
            connection.flush()
        except Exception as error:  # noqa: BLE001 - no connection may end the daemon
            connection.fail("fault", f"a fault of the sidecar: {described(error)}", Ending.FAULT)
        finally:
            connection.hang_up()
            self._endings[connection.ending or Ending.FAULT] += 1
            del self._connections[connection]
            connection.socket.close()

    async def _give_way(self) -> None:
        """Let readers have their answers first, within reason: an answer takes several turns of
        the event loop, and in each of them every producer would have its batch applied."""
        until = trio.current_time() + GIVE_WAY
        await trio.lowlevel.checkpoint()  # whose request has just come is not known to wait yet
        while self._others_wait() and trio.current_time() < until:
            await trio.lowlevel.checkpoint()

    async def _answer(self, connection: Connection) -> None:
        with trio.move_on_after(ANSWER_TIMEOUT) as scope:
            while not connection.flush():
                await trio.lowlevel.wait_writable(connection.socket)
        if scope.cancelled_caught:
            connection.fail("answers", f"answers unread for {ANSWER_TIMEOUT:.0f} s")
