"""Where a running sidecar serves HTTP: in a file beside its socket, since with any free port it
could not be known otherwise."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .state.regular import regular_file

_MAX_URL: Final = 256
"""Bytes of the file; an address and a port have a quarter of this."""
_NEW: Final = ".new"

_log = logging.getLogger("lilo_sidecar")


def url_file(socket: Path) -> Path:
    """The file's path: that of the socket, and ``.url``."""
    return socket.with_name(f"{socket.name}.url")


@contextlib.contextmanager
def announced(socket: Path, url: str, *, shared: bool) -> Iterator[None]:
    """Have the URL in its file until the end of the context. The directory is the one that the
    socket was just made in, which is nobody else's (`own_directory`).

    With mode 0600, or (``shared``: other users may connect to the socket) 0644. A file that cannot
    be written is told to the log, and nothing else comes of it. What a successor has put there
    meanwhile stays.
    """
    path = url_file(socket)
    try:
        content = f"{url}\n{os.getpid()}\n".encode()
        made = _write(path, content, 0o644 if shared else 0o600)
    except OSError as error:
        _log.warning(
            "cannot write %s, which tells others where this sidecar serves HTTP: %s; "
            "tell `lilo-sidecar check` and `top` with --http",
            path,
            error.strerror,
        )
        made = None
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if made is not None and _identity(path.lstat()) == made:
                path.unlink()


def announced_url(socket: Path, trusted: frozenset[int], listener_pid: int | None) -> str | None:
    """What is in the file of the sidecar at that socket; None if there is none. One that belongs to
    nobody in ``trusted`` (uids) counts as none: a token may be sent to where it leads. Raises
    `OSError` for one that cannot be read."""
    try:
        with regular_file(url_file(socket), follow=False) as file:
            if os.fstat(file.fileno()).st_uid not in trusted:
                return None
            content = file.read(_MAX_URL)
    except FileNotFoundError:
        return None
    url, _, pid = content.decode("ascii", errors="replace").strip().partition("\n")
    # One that was killed leaves its file, and its port to anybody.
    return url if url.startswith("http://") and pid == str(listener_pid) else None


def _write(path: Path, content: bytes, mode: int) -> tuple[int, int]:
    """Put a whole file in the place of whatever was there; which one it is."""
    new = path.with_name(f"{path.name}{_NEW}")
    with contextlib.suppress(FileNotFoundError):
        new.unlink()  # of one that was killed
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        os.fchmod(descriptor, mode)  # past the umask
        os.write(descriptor, content)
        made = _identity(os.fstat(descriptor))
        new.rename(path)
    except OSError:
        with contextlib.suppress(OSError):
            new.unlink()
        raise
    finally:
        os.close(descriptor)
    return made


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
