"""Any bytes, sealed as if the sidecar had written them: for what lies behind a checksum."""

from __future__ import annotations

import zlib

from lilo_sidecar.core.critical_path import CriticalPath
from lilo_sidecar.state.snapshot import dump


def sealed_record(payload: bytes) -> bytes:
    """A payload as a record of the journal."""
    length = len(payload).to_bytes(4, "big")
    return length + _checksum(length) + _checksum(payload) + payload


def sealed_snapshot(state: bytes) -> bytes:
    """A state as a snapshot of this version."""
    heading = dump(CriticalPath()).partition(b"\n")[0] + b"\n"
    packed = zlib.compress(state, 1)
    return heading + _checksum(packed) + packed


def _checksum(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(4, "big")
