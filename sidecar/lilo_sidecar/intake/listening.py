"""The two sockets that the daemon listens on. Every failure is a `StartError` that names the
place; a socket of somebody else is never taken over, and a file that is none never deleted."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import socket
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

from ..errors import StartError
from .directories import own_directory

MAX_SOCKET_PATH: Final = 107
"""Bytes: what `sun_path` holds beside its final zero; unix(7)."""
BACKLOG: Final = 1024
"""Connections that wait to be accepted. Far more than are ever served at once: whoever may not
connect, and tries all the same, is not to keep those waiting out who may."""
MAX_SEND_BUFFER: Final = 256 * 1024
MAX_RECEIVE_BUFFER: Final = 32 * 1024
"""Bytes that the system keeps for an HTTP connection, doubled by it for its own use (socket(7)):
an answer, and a head. Left to itself it keeps up to some megabytes, for each that never reads."""
EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""What `accept` fails with when the process or the machine has no room, for the moment."""
_LOCK_TIMEOUT: Final = 1.0
"""Seconds; whoever starts holds the lock for a few milliseconds."""

_log = logging.getLogger("lilo_sidecar.intake.ingest")


class Listener(Protocol):
    """A listening Unix socket, whoever made it."""

    socket: socket.socket
    """As of now, non-blocking."""

    def restore(self) -> None:
        """See to it that whoever comes later finds the sidecar, or say what to do. Never raises."""


class UnixListener:
    """A listening Unix socket that comes back when its file is removed. One thread."""

    def __init__(self, path: Path, allowed_uids: frozenset[int]) -> None:
        self._path = path
        self._allowed_uids = allowed_uids
        self._complained = False
        self._held = contextlib.ExitStack()
        self.socket, self._made = self._held.enter_context(_bound(path, allowed_uids))
        """The socket as of now, non-blocking; and which file it is."""

    def restore(self) -> None:
        """Listen anew if there is nothing at the path: whoever comes later would not find the
        sidecar. Accept first who waits on the old socket, which is closed. What somebody else put
        there is left alone; the log says so once. Never raises."""
        try:
            found = _identity(self._path)
        except OSError:
            self._put_back()
            return
        if found == self._made:
            self._complained = False
        else:
            self._complain(
                f"something else is at {self._path} now, and trainers that come do not find this "
                "sidecar; remove that, and the socket is put back"
            )

    def _put_back(self) -> None:
        fresh = contextlib.ExitStack()
        try:
            bound = _bound(self._path, self._allowed_uids, again=True)
            listener, made = fresh.enter_context(bound)
        except StartError as error:
            self._complain(f"the socket was removed and cannot be put back: {error}")
            return
        _log.warning("the socket %s was removed by somebody; it is put back", self._path)
        self.close()
        self._held, self.socket, self._made = fresh, listener, made
        self._complained = False

    def _complain(self, what: str) -> None:
        if not self._complained:
            _log.warning("%s", what)
        self._complained = True

    def close(self) -> None:
        """Listen no more; remove the file, if it is still this socket's."""
        self._held.close()


@contextlib.contextmanager
def unix_listener(path: Path, allowed_uids: frozenset[int] = frozenset()) -> Iterator[UnixListener]:
    """Listen at ``path``, with mode 0600, until the end of the context; non-blocking.

    The directory is one's own (`own_directory`); a socket that nobody listens on is replaced. At
    the end the socket is removed, if it is still this one. With ``allowed_uids`` any user can
    connect (mode 0666); whoever accepts the connections asks the kernel who it is.
    """
    check_socket_path(path)
    with contextlib.closing(UnixListener(path, allowed_uids)) as listener:
        yield listener


@contextlib.contextmanager
def _bound(
    path: Path, allowed_uids: frozenset[int], *, again: bool = False
) -> Iterator[tuple[socket.socket, tuple[int, int]]]:
    with contextlib.ExitStack() as held:
        try:
            own = own_directory(path.parent, shared=bool(allowed_uids), warn=not again)
            directory = held.enter_context(own)
            with _locked(directory):
                _clear(path, directory)
                listener = held.enter_context(_bind(path, 0o666 if allowed_uids else 0o600))
                # Missing if the path has come to lead elsewhere since the directory was checked.
                made = _identity(path.name, directory)
        except OSError as error:
            raise StartError(f"cannot listen on {path}: {error.strerror}") from None
        try:
            yield listener, made
        finally:
            with contextlib.suppress(OSError):
                if _identity(path.name, directory) == made:
                    os.unlink(path.name, dir_fd=directory)


def remove_stale(paths: Sequence[Path], directory: int) -> list[Path]:
    """Remove those that are sockets nobody listens on, all in ``directory``, which is one's own
    (`own_directory`). The paths where nothing is now. Never raises for what is there."""
    gone = []
    with _locked(directory):
        for path in paths:
            with contextlib.suppress(OSError, StartError):
                _clear(path, directory)
                gone.append(path)
    return gone


def check_socket_path(path: Path) -> None:
    """Raise `StartError` for a path that no Unix socket can have."""
    length = len(os.fsencode(path))
    if length > MAX_SOCKET_PATH:
        raise StartError(
            f"the socket path {path} has {length} bytes; the system allows {MAX_SOCKET_PATH}; "
            "choose a shorter one with --socket"
        )


def http_listener(family: int, address: tuple[str, int]) -> socket.socket:
    """A bound TCP socket, not yet listening."""
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        # A restarted daemon gets its port back although old connections linger on it.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Handed on to each connection, as they must be before there is one.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_SEND_BUFFER)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, MAX_RECEIVE_BUFFER)
        listener.bind(address)
    except OSError as error:
        listener.close()
        host, port = address
        hint = ""
        if error.errno == errno.EADDRINUSE:
            hint = "; choose another port with --http, or 0 for any that is free"
        raise StartError(f"cannot serve HTTP on {host}:{port}: {error.strerror}{hint}") from None
    return listener


@contextlib.contextmanager
def _locked(directory: int) -> Iterator[None]:
    """Keep others who start in the same directory out: two that both find a stale socket would
    both replace it. Whoever holds the lock for long is none of them, and is not waited for."""
    deadline = time.monotonic() + _LOCK_TIMEOUT
    while time.monotonic() < deadline:
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            time.sleep(0.01)
    try:
        yield
    finally:
        fcntl.flock(directory, fcntl.LOCK_UN)


def _identity(name: str | Path, directory: int | None = None) -> tuple[int, int]:
    """Which file is there, whatever it is called."""
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    return status.st_dev, status.st_ino


def _clear(path: Path, directory: int) -> None:
    """Make way at ``path``, which is in ``directory``: remove a socket whose owner is gone."""
    try:
        mode = os.stat(path.name, dir_fd=directory, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise StartError(f"{path} exists and is no socket; remove it, or choose another --socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            os.unlink(path.name, dir_fd=directory)
            return
        except FileNotFoundError:
            return
        except BlockingIOError:
            pass  # its queue is full: somebody is there
    raise StartError(
        f"another process listens on {path}; stop it, or choose another --socket for this one"
    )


def _bind(path: Path, mode: int) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o777 & ~mode)
    try:
        listener.bind(os.fspath(path))
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    finally:
        os.umask(before)
    return listener
