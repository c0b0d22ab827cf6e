"""The two sockets that the daemon listens on. Every failure is a `StartError` that names the
place; a socket of somebody else is never taken over, and a file that is none never deleted."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .errors import StartError

MAX_SOCKET_PATH: Final = 107
"""Bytes: what `sun_path` holds beside its final zero; unix(7)."""
_BACKLOG: Final = 64
"""Connections that wait to be accepted: twice what is ever served at once."""
_LOCK_TIMEOUT: Final = 1.0
"""Seconds; whoever starts holds the lock for a few milliseconds."""


@contextlib.contextmanager
def unix_listener(path: Path) -> Iterator[socket.socket]:
    """Listen at ``path``, with mode 0600, until the end of the context; non-blocking.

    A missing directory is made with mode 0700; a socket that nobody listens on is replaced. At
    the end the socket is removed, if it is still this one.
    """
    check_socket_path(path)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(path.parent):
            _clear(path)
            listener = _bind(path)
    except OSError as error:
        raise StartError(f"cannot listen on {path}: {error.strerror}") from None
    with listener:
        status = path.lstat()
        try:
            yield listener
        finally:
            with contextlib.suppress(OSError):
                now = path.lstat()
                if (now.st_dev, now.st_ino) == (status.st_dev, status.st_ino):
                    path.unlink()


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
def _locked(directory: Path) -> Iterator[None]:
    """Keep others who start in the same directory out: two that both find a stale socket would
    both replace it. Whoever holds the lock for long is none of them, and is not waited for."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        deadline = time.monotonic() + _LOCK_TIMEOUT
        while time.monotonic() < deadline:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.01)
        yield
    finally:
        os.close(descriptor)


def _clear(path: Path) -> None:
    """Make way at ``path``: remove a socket whose owner is gone."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise StartError(f"{path} exists and is no socket; remove it, or choose another --socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except FileNotFoundError:
            return
        except BlockingIOError:
            pass  # its queue is full: somebody is there
    raise StartError(
        f"another process listens on {path}; stop it, or choose another --socket for this one"
    )


def _bind(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(os.fspath(path))
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    finally:
        os.umask(before)
    return listener
