"""One producer's socket and session. Never blocks, never raises, and never leaves the core with
a producer that is gone."""

from __future__ import annotations

import enum
import logging
import select
import socket
from typing import Final

from lilo_engine_hook import wire

from .faults import described
from .peers import peer_of
from .session import Session

READ_BYTES: Final = 64 * 1024
"""Taken from a connection before the others get their turn."""
REFUSED_FOR_ROOM: Final = "busy"
"""The code of a refusal for which the producer is not to blame."""
REFUSED_PEER: Final = "peer"
"""The code of a refusal of the producer's user."""

_TOLD: Final = "the producer was told why"
"""In the log instead of the reason, which may quote what the producer sent."""

_log = logging.getLogger("lilo_sidecar.ingest")


class Ending(enum.Enum):
    """How a connection came to its end."""

    HUNG_UP = "hung up"
    REFUSED = "refused"
    REFUSED_PEER = "refused peer"
    PROTOCOL_ERROR = "protocol error"
    FAULT = "fault"


class Connection:
    """A producer's connection.

    Reading, applying and ending are plain calls without a pause: whoever finds that something
    has arrived (the connection's own task, another that needs to know, or the shutdown) may
    call `read`, and the order of the bytes is kept.
    """

    def __init__(self, sock: socket.socket, session: Session) -> None:
        sock.setblocking(False)
        self.socket = sock
        self.ending: Ending | None = None
        """None while the connection is open."""
        self._session = session
        self._reading = False
        self._deaf = False
        self.peer = peer_of(sock)

    @property
    def greeted(self) -> bool:
        """Whether the hello was accepted."""
        return self._session.hello is not None

    @property
    def hung_up(self) -> bool:
        """Whether the producer has closed its end; there may be more to read from it."""
        poll = select.poll()
        poll.register(self.socket, 0)  # POLLHUP and POLLERR are always reported
        return bool(poll.poll(0))

    def read(self) -> bool:
        """Take in what has arrived, up to READ_BYTES. False when there was nothing, or the
        connection is at its end."""
        if self.ending is not None or self._reading:
            return False
        self._reading = True  # the core may be told of others' hang-ups from within
        try:
            data = self.socket.recv(READ_BYTES)
            if data:
                self._session.receive(data)
            else:
                self._end(Ending.HUNG_UP)
        except BlockingIOError:
            return False
        except wire.ProtocolError as error:
            self._session.refuse(error.code, str(error))
            self.fail(error.code, _TOLD)
        except OSError:  # the producer went away with answers unread
            self._end(Ending.HUNG_UP)
        except Exception as error:  # noqa: BLE001 - no connection may end the daemon
            reason = f"a fault of the sidecar: {described(error)}"
            self._session.refuse("fault", reason)
            self.fail("fault", reason, Ending.FAULT)
        finally:
            self._reading = False
        return self.ending is None

    def refuse(self, reason: str) -> None:
        """Turn the producer away for want of room."""
        self._session.refuse(REFUSED_FOR_ROOM, reason)
        self.fail(REFUSED_FOR_ROOM, reason, Ending.REFUSED)

    def refuse_peer(self, reason: str) -> None:
        """Turn the producer away because of its user. The log is left to `Peers`, which knows
        what it said already."""
        self._session.refuse(REFUSED_PEER, reason)
        self._end(Ending.REFUSED_PEER)

    def fail(self, code: str, reason: str, ending: Ending = Ending.PROTOCOL_ERROR) -> None:
        """End the connection, and log why."""
        if self.ending is None:
            level = logging.ERROR if ending is Ending.FAULT else logging.WARNING
            _log.log(level, "connection from %s closed: %s: %s", self, code, reason)
            self._end(ending)

    def hang_up(self) -> None:
        """End the connection without a word."""
        self._end(Ending.HUNG_UP)

    def flush(self) -> bool:
        """Send what there is to answer. False when the producer takes no more for now."""
        answers = self._session.answers
        while answers and not self._deaf:
            try:
                del answers[: self.socket.send(answers)]
            except BlockingIOError:
                return False
            except OSError:
                # It hung up. What it sent before is still to be read.
                self._deaf = True
        answers.clear()
        return True

    def _end(self, ending: Ending) -> None:
        if self.ending is not None:
            return
        self.ending = ending
        try:
            self._session.end()
        except wire.ProtocolError as error:
            if ending is Ending.HUNG_UP:
                self.ending = Ending.PROTOCOL_ERROR
                _log.warning("connection from %s closed: %s: %s", self, error.code, error)
        except Exception as error:  # noqa: BLE001 - no connection may end the daemon
            _log.error("a fault while ending the connection from %s: %s", self, described(error))
            self.ending = Ending.FAULT

    def __str__(self) -> str:
        return f"pid {self.peer.pid}"
