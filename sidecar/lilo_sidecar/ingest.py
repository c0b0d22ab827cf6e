"""The intake of events: accepts producers' connections and keeps their faults apart."""

from __future__ import annotations

import errno
import logging
import math
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import trio

from .connection import Connection, Ending
from .faults import described
from .listening import UnixListener
from .peers import Peers
from .recorder import Recorder
from .session import Session
from .timing import Timing

MAX_CONNECTIONS: Final = 32
"""Producers at once: an engine, a backend and their forks for each of several trainers in one
container. Each may hold one frame and one read, so all of them stay under 11 MiB."""
HELLO_TIMEOUT: Final = 10.0
"""Seconds for the hello, which a hook sends as soon as it is connected."""
ANSWER_TIMEOUT: Final = 10.0
"""Seconds for a producer to take an answer: a few bytes, of which its socket holds thousands."""
DRAIN_TIMEOUT: Final = 1.0
"""Seconds at shutdown for what was sent already."""
LOOK_INTERVAL: Final = 1.0
"""Seconds between looks whether the socket's file is still there."""
_ACCEPT_PAUSE: Final = 0.1
"""Seconds until the next try when the process has run out of descriptors or memory."""
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

_log = logging.getLogger("lilo_sidecar.ingest")


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
        self._exhausted = False
        self._nursery: trio.Nursery | None = None
        """Of the connections' tasks, while `run` runs."""

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
        listener: UnixListener,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Accept and serve connections until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            try:
                while True:
                    with trio.move_on_after(LOOK_INTERVAL):
                        await trio.lowlevel.wait_readable(listener.socket)
                    if not self._accept_waiting(listener, nursery):
                        await trio.sleep(_ACCEPT_PAUSE)
                    listener.restore()
            finally:
                self._nursery = None

    async def drain(self, listener: UnixListener) -> None:
        """Take in what producers have sent so far, for at most DRAIN_TIMEOUT seconds, and
        acknowledge it. `run` goes on beside it; without it there is nothing to take in."""
        if self._nursery is None:
            return
        self._accept_waiting(listener, self._nursery)
        with trio.move_on_after(DRAIN_TIMEOUT):
            # In turns: one that sends without end must not use up the others' time.
            while [connection for connection in list(self._connections) if connection.read()]:
                await trio.lowlevel.checkpoint()
        for connection in self._connections:
            connection.flush()

    def _accept_waiting(self, listener: UnixListener, nursery: trio.Nursery) -> bool:
        """Accept all who wait. False when the machine has no room for more."""
        while True:
            try:
                sock, _ = listener.socket.accept()
            except BlockingIOError:
                return True
            except ConnectionAbortedError:
                continue  # that producer went away before it was accepted
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                if not self._exhausted:
                    _log.warning("cannot accept connections for now: %s", error)
                self._exhausted = True
                return False
            self._exhausted = False
            self._admit(sock, nursery)

    def _admit(self, sock: socket.socket, nursery: trio.Nursery) -> None:
        def read_out_predecessors() -> None:
            self._read_out(before=connection)

        session = Session(self._core, read_out_predecessors, self._on_trainer_ended)
        connection = Connection(sock, session)
        objection = self._peers.objection(connection.peer)
        if objection is not None:
            connection.refuse_peer(objection)
        else:
            self._find_room(connection)
        self._connections[connection] = None
        nursery.start_soon(self._serve, connection)

    def _find_room(self, connection: Connection) -> None:
        if self.statistics().connections >= MAX_CONNECTIONS:
            self._read_out(before=connection)
        if self.statistics().connections >= MAX_CONNECTIONS:
            connection.refuse(f"{MAX_CONNECTIONS} producers are connected")

    def _read_out(self, before: Connection) -> None:
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
                    connection.read()
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

    async def _answer(self, connection: Connection) -> None:
        with trio.move_on_after(ANSWER_TIMEOUT) as scope:
            while not connection.flush():
                await trio.lowlevel.wait_writable(connection.socket)
        if scope.cancelled_caught:
            connection.fail("answers", f"answers unread for {ANSWER_TIMEOUT:.0f} s")
