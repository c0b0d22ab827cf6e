"""The directory that the socket is in: whoever can write to it could put a socket of their own in
that place, and be told what trainers report."""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ..errors import StartError
from .way import check_way

_ROOT: Final = 0
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_OTHERS_ENTER: Final = stat.S_IXGRP | stat.S_IXOTH

_log = logging.getLogger("lilo_sidecar")


@contextlib.contextmanager
def own_directory(path: Path, *, shared: bool, warn: bool = True) -> Iterator[int]:
    """A descriptor of the directory, which only this user or root owns and only its owner can
    write to; a missing one is made, with its parents, for this user alone (0700), or such that
    others can reach what is in it (``shared``: 0711). The path is absolute, and nobody else can
    make it lead elsewhere (`check_way`).

    What is done by way of the descriptor is done in the directory that was checked, whatever
    becomes of its name. Raises `StartError`, and `OSError` where there is no such directory.
    Without ``warn`` the log does not hear what is doubtful about it.
    """
    check_way(path, warn=False)  # nothing is made in a place that a link of somebody's leads to
    make_directories(path, shared=shared)
    there = check_way(path, warn=warn)  # others may have made a part of it meanwhile
    descriptor = os.open(there, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        _check(path, os.fstat(descriptor), shared=shared, warn=warn)
        yield descriptor
    finally:
        os.close(descriptor)


def make_directories(path: Path, *, shared: bool) -> None:
    """Make a directory and its parents, as far as they are missing: for this user alone, or such
    that others can reach what is in it. Raises `OSError`."""
    # One by one: the parents that `mkdir` makes by itself are anybody's under a lax umask.
    for missing in reversed([each for each in (path, *path.parents) if not each.exists()]):
        with contextlib.suppress(FileExistsError):  # another one that starts here made it
            missing.mkdir(0o700)
            if shared:
                missing.chmod(0o711)  # past the umask


def _check(path: Path, status: os.stat_result, *, shared: bool, warn: bool) -> None:
    mode = stat.S_IMODE(status.st_mode)
    own = "choose a --socket in a directory of your own, which is made if it is missing"
    if status.st_uid not in (_ROOT, os.geteuid()):
        raise StartError(
            f"the directory {path} belongs to uid {status.st_uid}, who could put another socket "
            f"in the place of this one; {own}, or run the sidecar as that user"
        )
    if mode & _OTHERS_WRITE:
        # A volume that containers share is like that at its root, and takes one in it.
        instead = f"{own}, such as {path / 'timing'}"
        if not mode & stat.S_ISVTX:  # a sticky one is everybody's by design
            instead = f"chmod go-w {path}, or {instead}"
        raise StartError(
            f"other users may write to the directory {path} (mode {mode:04o}) and could put "
            f"another socket in the place of this one; {instead}"
        )
    if warn and shared and not mode & _OTHERS_ENTER:
        _log.warning(
            "the directory %s has mode %04o, so the users of --allow-uid cannot reach the socket "
            "in it; chmod 711 it",
            path,
            mode,
        )
