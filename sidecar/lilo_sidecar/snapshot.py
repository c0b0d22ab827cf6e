"""The core's whole state as bytes, for the journal to begin from.

It is a pickle of the core's own plain objects, which keeps what refers to what. Nothing else can
come out of one: only classes of the core's modules are looked up, never functions. A snapshot
names the code that it was made by, since another one's objects may have other fields, or the
same with another meaning.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import sys
import zlib
from pathlib import Path
from typing import Any, Final

from lilo_engine_hook import wire

from . import (
    account,
    activity,
    critical_path,
    delivery,
    departed,
    lanes,
    ledger,
    model,
    persistence,
    producers,
    readers,
    records,
    series,
    shares,
    spans,
    timeline,
    trainer,
)
from .critical_path import CriticalPath

MAX_SNAPSHOT: Final = 12 * 1024 * 1024
"""Bytes. A full state (every series, 8 readers of each model, all of the timeline) has 8 MiB."""
_MAGIC: Final = b"lilo-timing snapshot "
_CORE: Final = (
    *(
        account,
        activity,
        critical_path,
        delivery,
        departed,
        lanes,
        ledger,
        model,
        persistence,
        producers,
    ),
    *(readers, records, series, shares, spans, timeline, trainer),
    sys.modules[wire.Span.__module__],
    sys.modules[wire.Hello.__module__],
)
_NAMES: Final = frozenset(module.__name__ for module in _CORE)
_ARRAYS: Final = frozenset({("array", "array"), ("array", "_array_reconstructor")})


class SnapshotError(Exception):
    """There is no state to be had from it."""


class OtherVersionError(SnapshotError):
    """It was made by other code."""


class SnapshotTooLargeError(SnapshotError):
    """The state has more than MAX_SNAPSHOT bytes."""


def _code() -> bytes:
    """What tells this code from any other."""
    digest = hashlib.sha256()
    for module in _CORE:
        digest.update(Path(str(module.__file__)).read_bytes())
    return digest.hexdigest()[:32].encode()


_HEADING: Final = _MAGIC + _code() + b"\n"
_CHECKSUM: Final = 4


def dump(core: CriticalPath) -> bytes:
    """The state as bytes, the same for the same state. Raises `SnapshotTooLargeError`."""
    state = pickle.dumps(core, protocol=5)
    if len(state) > MAX_SNAPSHOT:
        raise SnapshotTooLargeError(
            f"the state has {len(state)} bytes, and a snapshot {MAX_SNAPSHOT} at most"
        )
    return _HEADING + zlib.crc32(state).to_bytes(_CHECKSUM, "big") + state


def load(data: bytes) -> CriticalPath:
    """The state in a snapshot. Raises `SnapshotError`, and nothing else."""
    heading, newline, rest = data.partition(b"\n")
    if not (heading.startswith(_MAGIC) and newline):
        raise SnapshotError("it is no snapshot")
    if heading + newline != _HEADING:
        raise OtherVersionError("it is of another version of the sidecar")
    state = rest[_CHECKSUM:]
    if zlib.crc32(state) != int.from_bytes(rest[:_CHECKSUM], "big"):
        raise SnapshotError("it is not as it was written")
    try:
        core = _Unpickler(io.BytesIO(state)).load()
    except Exception as error:  # noqa: BLE001 - what a pickle may come to has no bounds
        raise SnapshotError(f"it holds no state: {type(error).__name__}") from None
    if not isinstance(core, CriticalPath):
        raise SnapshotError(f"it holds a {type(core).__name__}")
    return core


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _ARRAYS:
            return super().find_class(module, name)
        if module in _NAMES and "." not in name:
            found = getattr(sys.modules[module], name, None)
            if isinstance(found, type) and found.__module__ == module:
                return found
        raise pickle.UnpicklingError("it refers to what is no part of a state")
