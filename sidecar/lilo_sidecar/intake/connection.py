"""One producer's socket and session. Never blocks, never raises, and never leaves the core with
a producer that is gone."""

from __future__ import annotations

import enum
import logging
import select
import socket
from typing import Final

from lilo_engine_hook import wire

from ..faults import described
from .peers import Peer
from .session import Session
from .throttle import Throttle

READ_BYTES: Final = 4 * 1024
"""Taken from a connection before the others, and readers, get their turn: less than the largest
batch, so that whoever waits does so for one batch at most."""

_TOLD: Final = "the producer was told why"
"""In the log instead of the reason, which may quote what the producer sent."""


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

    def __init__(
        self, sock: socket.socket, peer: Peer, session: Session, throttle: Throttle
    ) -> None:
        """``sock`` is non-blocking and comes from ``peer``; the log is reached by ``throttle``."""
        self.socket = sock
        self.peer = peer
        self.ending: Ending | None = None
        """None while the connection is open."""
        self._session = session
        self._throttle = throttle
        self._reading = False
        self._deaf = False

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

    def fail(self, code: str, reason: str, ending: Ending = Ending.PROTOCOL_ERROR) -> None:
        """End the connection, and log why."""
        if self.ending is None:
            level = logging.ERROR if ending is Ending.FAULT else logging.WARNING
            self._tell(level, code, reason)
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
                self._tell(logging.WARNING, error.code, str(error))
        except Exception as error:  # noqa: BLE001 - no connection may end the daemon
            self._tell(logging.ERROR, "fault", f"a fault while ending it: {described(error)}")
            self.ending = Ending.FAULT

    def _tell(self, level: int, code: str, reason: str) -> None:
        line = "connection from pid %d closed: %s: %s"
        self._throttle.tell(level, code, line, self.peer.pid, code, reason)
