"""The way to a directory, name by name, as the system goes it: each directory that a name is looked
up in, and each link, could be made to lead elsewhere by whoever owns it."""

from __future__ import annotations

import errno
import logging
import os
import stat
from pathlib import Path
from typing import Final

from ..errors import StartError

MAX_LINKS: Final = 40
"""Links that are followed, as the system has it; path_resolution(7)."""
_ROOT: Final = 0
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_INSTEAD: Final = "choose a --socket that only directories of your own and of root lead to"

_log = logging.getLogger("lilo_sidecar")


def check_way(path: Path, *, warn: bool) -> Path:
    """Where an absolute path leads, without a link in it; as far as it exists.

    Raises `StartError` where a user beside this one and root owns a directory or a link on the
    way: they could exchange what follows, at any time. Where they own none but may write to a
    directory without the sticky bit, as everybody in a container may to a shared volume, the log
    is told (``warn``): who they are is not known here. The directory at the end is the caller's
    to check. Raises `OSError` for a way that nobody can go.
    """
    # Whoever owns the root directory is root by another name: in a user namespace, for one.
    trusted = {_ROOT, os.geteuid(), Path("/").stat().st_uid}
    at, links, doubtful = Path("/"), 0, dict[Path, int]()
    names = [*reversed(path.parts[1:])]
    while names:
        name = names.pop()
        if name == "..":
            at = at.parent
            continue
        looked_in = at.lstat()
        _check_owner(at, looked_in, trusted, f"{name!r} in it")
        mode = stat.S_IMODE(looked_in.st_mode)
        if mode & _OTHERS_WRITE and not mode & stat.S_ISVTX:
            doubtful[at] = mode
        try:
            status = (at / name).lstat()
        except FileNotFoundError:
            at = at.joinpath(name, *reversed(names))
            break
        if not stat.S_ISLNK(status.st_mode):
            at /= name
            continue
        _check_owner(at / name, status, trusted, "it")
        links += 1
        if links > MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(path))
        target = (at / name).readlink()
        if target.is_absolute():
            at = Path("/")
        names += reversed(target.parts[1:] if target.is_absolute() else target.parts)
    if warn and doubtful:
        _warn_of(path, doubtful)
    return at


def _check_owner(here: Path, status: os.stat_result, trusted: set[int], what: str) -> None:
    if status.st_uid in trusted:
        return
    kind = "link" if stat.S_ISLNK(status.st_mode) else "directory"
    raise StartError(
        f"the {kind} {here}, on the way to the socket, belongs to uid {status.st_uid}, who could "
        f"replace {what} and be told what trainers report; {_INSTEAD}, or run the sidecar as that "
        "user"
    )


def _warn_of(path: Path, doubtful: dict[Path, int]) -> None:
    places = ", ".join(f"{place} (mode {mode:04o})" for place, mode in doubtful.items())
    _log.warning(
        "other users may write to %s, on the way to the socket, and could put another directory "
        "in the place of the one that leads to %s; if there are other users, %s, or chmod +t it",
        places,
        path,
        _INSTEAD,
    )
