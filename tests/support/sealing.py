"""Any bytes, sealed as if the sidecar had written them: for what lies behind a checksum."""

from __future__ import annotations

import zlib

from lilo_sidecar.critical_path import CriticalPath
from lilo_sidecar.snapshot import dump


def sealed_record(payload: bytes) -> bytes:
    """A payload as a record of the journal."""
    return len(payload).to_bytes(4, "big") + zlib.crc32(payload).to_bytes(4, "big") + payload


def sealed_snapshot(state: bytes) -> bytes:
    """A state as a snapshot of this version."""
    heading = dump(CriticalPath()).partition(b"\n")[0] + b"\n"
    return heading + zlib.crc32(state).to_bytes(4, "big") + state
