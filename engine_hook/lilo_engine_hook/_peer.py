"""Whom the hook tells: whoever listens at the path may be somebody else than the sidecar."""

from __future__ import annotations

import os
import socket
import stat
import struct
from itertools import chain
from typing import Final

_ROOT: Final = 0
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_UCRED: Final = struct.Struct("iII")
"""``struct ucred`` in unix(7): pid, uid, gid."""


def objection(connection: socket.socket, path: str) -> str | None:
    """Why nothing may be told to the process that listens at ``path``, to which ``connection`` is
    connected; None if it is trusted. May look at the file system; raises `OSError`.

    Trusted are root and this process's user, and a user who was given the directory that the
    socket is in: who owns it, alone can write to it, and cannot have put it there by himself,
    as anybody can in a directory such as ``/tmp``.
    """
    packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    _, uid, _ = _UCRED.unpack(packed)
    if uid in (_ROOT, os.geteuid()) or uid == _given_to(path):
        return None
    return (
        f"uid {uid} listens at {path}, who is neither this process's user nor root; nothing is "
        "sent there. If it is a sidecar of yours, have both use a socket in a directory that "
        f"belongs to uid {uid}, that nobody else can write to, and that is not in /tmp"
    )


def _given_to(path: str) -> int | None:
    """Who owns the directory of a path, if only its owner can write to it and somebody trusted
    gave it to him; None for any other."""
    from pathlib import Path  # takes as long to import as half of the hook; hardly anybody needs it

    directory = Path(path).absolute().parent
    status = directory.stat()
    if status.st_mode & _OTHERS_WRITE:
        return None
    real = Path(os.path.realpath(directory))
    for place in chain((directory, *directory.parents), (real, *real.parents)):
        entry, around = place.lstat(), place.parent.stat().st_mode
        if entry.st_uid in (_ROOT, os.geteuid()):
            continue
        for_everybody = around & stat.S_ISVTX and around & _OTHERS_WRITE
        if for_everybody or entry.st_uid != status.st_uid:
            return None
    return status.st_uid
