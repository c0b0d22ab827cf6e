"""The core's whole state as bytes, packed, for the journal to begin from.

A snapshot names the code that it was made by: another one's objects may have other fields, or
the same ones with another meaning.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from lilo_engine_hook import wire

from ..core import (
    account,
    activity,
    critical_path,
    delivery,
    departed,
    former,
    lanes,
    ledger,
    model,
    models,
    persistence,
    producers,
    readers,
    reading,
    records,
    series,
    shares,
    spans,
    timeline,
    trainer,
)
from ..core.critical_path import CriticalPath
from . import codec
from .codec import BrokenStateError, StateCodec

MAX_SNAPSHOT: Final = 12 * 1024 * 1024
"""Bytes. A full state (every series, 8 readers of each model, all of the timeline) has 2 MiB at
most, and 7 MiB if it is of 8,192 models with the longest ids there are, of random characters."""
MAX_STATE: Final = 32 * 1024 * 1024
"""Bytes of what is packed in it: a full state has 8 MiB at most, and 20 MiB with such ids."""
_LEVEL: Final = 1
"""A fifth of the bytes, for a seventh of the time that it takes to write the state down."""
_MAGIC: Final = b"lilo-timing snapshot "
_CHECKSUM: Final = 4
_CORE: Final = (
    *(account, activity, critical_path, delivery, departed, former, lanes),
    *(ledger, model, models, persistence, producers, readers, records, series, timeline, trainer),
    sys.modules[wire.Hello.__module__],
    sys.modules[wire.Span.__module__],
)
"""The modules of whose classes a state is made."""
_CODE: Final = (
    *(*_CORE, reading, shares, spans, codec),
    sys.modules[wire.NameBudget.__module__],
    sys.modules[wire.plain_names.__module__],
)
"""Those, and what else decides what it means."""
_CODEC: Final = StateCodec(
    [
        kind
        for module in _CORE
        for kind in vars(module).values()
        if isinstance(kind, type) and kind.__module__ == module.__name__
    ]
)


class SnapshotError(Exception):
    """There is no state to be had from it."""


class OtherVersionError(SnapshotError):
    """It was made by other code."""


class SnapshotTooLargeError(SnapshotError):
    """The state has more than MAX_STATE bytes, or MAX_SNAPSHOT when it is packed."""


def _version() -> bytes:
    """What tells this code from any other."""
    digest = hashlib.sha256()
    for module in _CODE:
        digest.update(Path(str(module.__file__)).read_bytes())
    return digest.hexdigest()[:32].encode()


_HEADING: Final = _MAGIC + _version() + b"\n"


def dump(core: CriticalPath) -> bytes:
    """The state as bytes, the same for the same state. Raises `SnapshotTooLargeError`."""
    with _no_collection():
        state = _CODEC.encode(core)
    if len(state) > MAX_STATE:
        raise SnapshotTooLargeError(f"the state has {len(state)} bytes, of {MAX_STATE} at most")
    packed = zlib.compress(state, _LEVEL)
    if len(packed) > MAX_SNAPSHOT:
        raise SnapshotTooLargeError(
            f"the state has {len(packed)} bytes when it is packed, of {MAX_SNAPSHOT} at most"
        )
    return _HEADING + zlib.crc32(packed).to_bytes(_CHECKSUM, "big") + packed


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Nothing that is made meanwhile is garbage before the end, and to look for some among all of
    it takes a third of the time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def load(data: bytes) -> CriticalPath:
    """The state in a snapshot. Raises `SnapshotError`, and nothing else."""
    heading, newline, rest = data.partition(b"\n")
    if not (heading.startswith(_MAGIC) and newline):
        raise SnapshotError("it is no snapshot")
    if heading + newline != _HEADING:
        raise OtherVersionError("it is of another version of the sidecar")
    packed = rest[_CHECKSUM:]
    if zlib.crc32(packed) != int.from_bytes(rest[:_CHECKSUM], "big"):
        raise SnapshotError("it is not as it was written")
    try:
        core = _CODEC.decode(_unpacked(packed))
        if not isinstance(core, CriticalPath):
            raise SnapshotError(f"it holds a {type(core).__name__}")
        core.lifetime(0.0)
    except BrokenStateError as error:
        raise SnapshotError(str(error)) from None
    except (AttributeError, TypeError, ValueError, LookupError, ArithmeticError) as error:
        raise SnapshotError(f"it holds a broken state: {type(error).__name__}") from None
    return core


def _unpacked(packed: bytes) -> bytes:
    """Never makes more of it than a state may have."""
    unpacking = zlib.decompressobj()
    try:
        state = unpacking.decompress(packed, MAX_STATE)
    except zlib.error:
        raise BrokenStateError("it holds no packed state") from None
    if not unpacking.eof:
        raise BrokenStateError("it holds no whole state")
    return state
