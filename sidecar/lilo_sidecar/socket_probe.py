"""The socket as a trainer of this process's user finds it. Connects to it and says nothing, which
the sidecar takes for a trainer that thought better of it."""

from __future__ import annotations

import contextlib
import enum
import errno
import os
import select
import socket
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lilo_engine_hook import wire
from lilo_engine_hook._peer import objection  # what a trainer's hook asks, word for word

from .intake.listening import MAX_SOCKET_PATH
from .intake.peers import peer_of

REFUSAL_TIMEOUT: Final = 1.0
"""Seconds that another user's sidecar has to say that it does not take us: it says so at once,
unless it is too busy, and if it takes us it says nothing."""
_ROOT: Final = 0


class SocketState(enum.Enum):
    """What is at the path."""

    TOO_LONG = "no socket can have such a path"
    NO_DIRECTORY = "its directory is not there"
    MISSING = "nothing is there"
    NOT_A_SOCKET = "a file that is no socket"
    STALE = "a socket that nobody listens on"
    FORBIDDEN = "this user may not connect"
    CROWDED = "nobody accepts connections there"
    LISTENING = "somebody listens"


@dataclass(frozen=True, slots=True)
class SocketProbe:
    """What was found at a path."""

    path: Path
    state: SocketState
    blocked_at: str = ""
    """Of a forbidden one: which file or directory keeps this user out, whose it is, its mode."""
    listener_uid: int | None = None
    """Of a listening one: the user who listens."""
    listener_pid: int | None = None
    """And the process that began to; systemd's, where that made the socket."""
    distrust: str | None = None
    """Why a hook of this user would send nothing to whoever listens."""
    refusal: tuple[str, str] | None = None
    """Code and reason, where the sidecar turned this user's connection away."""

    @property
    def trusted_uids(self) -> frozenset[int]:
        """Whose word on this sidecar is good: one's own, root's, and the listener's if trusted."""
        listener = () if self.listener_uid is None or self.distrust else (self.listener_uid,)
        return frozenset({_ROOT, os.geteuid(), *listener})


def probe(path: Path) -> SocketProbe:
    """Look at an absolute path. Takes a moment at most, REFUSAL_TIMEOUT where another user listens.
    Never raises for what is found there."""
    if len(os.fsencode(path)) > MAX_SOCKET_PATH:
        return SocketProbe(path, SocketState.TOO_LONG)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.setblocking(False)
        try:
            connection.connect(os.fspath(path))
            return _listening(connection, path)
        except (FileNotFoundError, NotADirectoryError):
            missing = SocketState.MISSING if path.parent.is_dir() else SocketState.NO_DIRECTORY
            return SocketProbe(path, missing)
        except PermissionError:
            return SocketProbe(path, SocketState.FORBIDDEN, _blocked_at(path))
        except ConnectionRefusedError:
            with contextlib.suppress(OSError):
                if not stat.S_ISSOCK(path.stat().st_mode):
                    return SocketProbe(path, SocketState.NOT_A_SOCKET)
            return SocketProbe(path, SocketState.STALE)
        except BlockingIOError:
            return SocketProbe(path, SocketState.CROWDED)
        except OSError as error:
            why = os.strerror(error.errno or errno.EIO)
            return SocketProbe(path, SocketState.FORBIDDEN, f"{path} ({why})")


def probe_unnamed(default: Path) -> tuple[SocketProbe, tuple[Path, ...]]:
    """Look where nobody named a socket: at the default one, or if nobody listens there, at that of
    the only `lilo-sidecar run` there is: who has one trainer here means that one. Where there are
    several of those, their sockets come second."""
    found = probe(default)
    if found.state is SocketState.LISTENING:
        return found, ()
    runs = _runs_beside(default)
    return (probe(runs[0]), ()) if len(runs) == 1 else (found, runs)


def _runs_beside(default: Path) -> tuple[Path, ...]:
    """Sockets of `lilo-sidecar run` that somebody listens on, in the directory where those are that
    were given no other."""
    with contextlib.suppress(OSError):
        found = sorted(default.parent.glob("run-*.sock"))
        return tuple(path for path in found if probe(path).state is SocketState.LISTENING)
    return ()


def _listening(connection: socket.socket, path: Path) -> SocketProbe:
    pid, uid = peer_of(connection)
    distrust = objection(connection, os.fspath(path))
    # A sidecar takes its own user and root, unless it has no room.
    certain = os.geteuid() in (_ROOT, uid)
    refusal = _refusal(connection, 0.0 if certain else REFUSAL_TIMEOUT)
    return SocketProbe(
        path,
        SocketState.LISTENING,
        listener_uid=uid,
        listener_pid=pid,
        distrust=distrust,
        refusal=refusal,
    )


def _refusal(connection: socket.socket, timeout: float) -> tuple[str, str] | None:
    answered = select.poll()  # unlike select(), it takes a descriptor of any number
    answered.register(connection, select.POLLIN)
    if not answered.poll(1000 * timeout):
        return None
    frames = wire.FrameBuffer()
    with contextlib.suppress(OSError, wire.ProtocolError):
        for payload in frames.feed(connection.recv(wire.MAX_FRAME)):
            message = wire.decode(payload)
            if isinstance(message, wire.Refusal):
                return message.code, message.message
    return None


def _blocked_at(path: Path) -> str:
    """The first on the way to the socket that this user may not pass."""
    for place in _way(path):
        wanted = os.W_OK if place == path else os.X_OK
        if not os.access(place, wanted, effective_ids=True):
            kind = "socket" if place == path else "directory"
            try:
                status = place.stat()
            except OSError:
                return f"the {kind} {place}"
            mode = stat.S_IMODE(status.st_mode)
            return f"the {kind} {place}, of uid {status.st_uid} and mode {mode:04o}"
    return f"the socket {path}"


def _way(path: Path) -> Iterator[Path]:
    yield from reversed(path.parents)
    yield path
