"""A listening socket that systemd made and passed on; sd_listen_fds(3).

systemd then holds the socket while no sidecar runs: a trainer that connects meanwhile waits for
the next one instead of being turned away, and starts it.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..errors import StartError

FIRST_DESCRIPTOR: Final = 3
"""Of those that are passed: the first one after stdin, stdout and stderr."""
_VARIABLES: Final = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID")
_WANTED: Final = "the unit has one ListenStream= with the path of a Unix socket"

_log = logging.getLogger("lilo_sidecar.intake.ingest")


@dataclass(frozen=True, slots=True)
class PassedSocket:
    """A listening Unix socket of somebody else's making."""

    descriptor: int
    path: Path
    """Absolute; where it is bound."""


def passed_socket(environment: MutableMapping[str, str]) -> PassedSocket | None:
    """The socket that this process was started with; None without one, or where the variables
    were meant for another process. They are removed: a child is not to take them for its own.

    Raises `StartError` for anything but one listening Unix stream socket with a path.
    """
    pid, count, *_ = (environment.pop(name, "") for name in _VARIABLES)
    if pid != str(os.getpid()) or count in ("", "0"):
        return None
    if count != "1":
        raise StartError(f"systemd passed {count} sockets, and one is expected; {_WANTED}")
    try:
        os.set_inheritable(FIRST_DESCRIPTOR, False)
        with socket.socket(fileno=os.dup(FIRST_DESCRIPTOR)) as passed:
            name = _path(passed)
    except OSError as error:
        raise StartError(f"what systemd passed is no socket: {error.strerror}; {_WANTED}") from None
    if name is None:
        raise StartError(f"what systemd passed is no listening Unix socket; {_WANTED}")
    return PassedSocket(FIRST_DESCRIPTOR, Path(name))


def _path(passed: socket.socket) -> str | None:
    """Where it is bound, if it is what is expected."""
    if (passed.family, passed.type) != (socket.AF_UNIX, socket.SOCK_STREAM):
        return None
    if not passed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        return None
    name = passed.getsockname()  # bytes where it is abstract
    return name if isinstance(name, str) and name.startswith("/") else None


class PassedListener:
    """The passed socket, in the place of one of this sidecar's making. One thread.

    Its directory is not looked at: whoever passed the socket put it there, and is trusted. Nor is
    its file this sidecar's to remove, or to put back.
    """

    def __init__(self, passed: PassedSocket) -> None:
        self._path = passed.path
        self._complained = False
        self.socket = socket.socket(fileno=passed.descriptor)
        """Non-blocking."""
        self.socket.setblocking(False)

    def restore(self) -> None:
        """Say once that the file is gone, where it is. Never raises."""
        try:
            self._path.lstat()
            gone = False
        except (FileNotFoundError, NotADirectoryError):
            gone = True
        except OSError:  # it may be where only systemd may look
            gone = False
        if gone and not self._complained:
            _log.warning(
                "the socket %s was removed by somebody, and trainers that come do not find this "
                "sidecar; it is systemd's to put back: restart its socket unit",
                self._path,
            )
        self._complained = gone

    def close(self) -> None:
        """Listen no more; the file stays."""
        self.socket.close()
