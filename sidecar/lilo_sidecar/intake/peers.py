"""Which processes may report: those of the sidecar's own user, of root, and of users that were
named at the start."""

from __future__ import annotations

import logging
import os
import socket
import struct
from typing import Final, NamedTuple

MAX_TOLD: Final = 64
"""Users that were refused and are remembered, so that each is logged once; those beyond are not
logged at all."""
_ROOT: Final = 0
_UCRED: Final = struct.Struct("iII")
"""``struct ucred`` in unix(7): pid, uid, gid."""

_log = logging.getLogger("lilo_sidecar.intake.ingest")


class Peer(NamedTuple):
    """The process at the other end of a Unix socket, as it was when it connected."""

    pid: int
    """In this process's namespace; 0 when it is of another."""
    uid: int


def peer_of(sock: socket.socket) -> Peer:
    """Who connected, as the kernel knows it."""
    packed = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    pid, uid, _gid = _UCRED.unpack(packed)
    return Peer(pid, uid)


class Peers:
    """Tells who may report from who may not."""

    def __init__(self, allowed_uids: frozenset[int] = frozenset()) -> None:
        """``allowed_uids`` are the users beside this process's own and root."""
        self._own = os.geteuid()
        self._allowed = allowed_uids | {self._own, _ROOT}
        self._told: set[int] = set()

    def objection(self, peer: Peer) -> str | None:
        """Why ``peer`` may not report, and what to do; None if it may. The log is told once per
        user, however often its processes try."""
        if peer.uid in self._allowed:
            return None
        reason = (
            f"processes of uid {peer.uid} may not report to this sidecar, which runs as uid "
            f"{self._own}; run both as one user, or start the sidecar with --allow-uid {peer.uid}"
        )
        if peer.uid not in self._told and len(self._told) < MAX_TOLD:
            self._told.add(peer.uid)
            _log.warning("connection from pid %d refused: %s", peer.pid, reason)
        return reason
