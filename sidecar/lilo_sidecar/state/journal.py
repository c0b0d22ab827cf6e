"""The journal: everything that changed the core's state, in order, in a file.

A file is a line that names the format, then records: each one the length of its payload, the
CRC-32 of that length and the CRC-32 of the payload, four bytes big-endian each, and the payload,
one msgpack array that begins with the record's kind. A record that is not there whole, or not as
it was written, ends the journal. With its length known to be right, a record that was never
written whole, as a process that is killed leaves one, is told from damage, behind which other
records may have been.
"""

from __future__ import annotations

import contextlib
import errno
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Final, NamedTuple, TypeAlias

import msgpack

from lilo_engine_hook import wire

MAGIC: Final = b"lilo-timing journal 2\n"
MAX_RECORD: Final = wire.MAX_FRAME + 4096
"""Bytes of a payload: a batch as it came, and whose it was."""
_MAX_TIME: Final = 1e11
"""Unix seconds. No clock goes as far, and every earlier time has a date."""
_HEAD: Final = 12
_MAX_TEXT: Final = 4 * wire.MAX_MODEL_ID
"""Bytes of a string in a record; batches are no strings but bytes."""


class Connected(NamedTuple):
    """A producer said hello; ``hello`` is the payload of its frame."""

    now: float
    hello: bytes


class Applied(NamedTuple):
    """A batch came from a connected producer; ``batch`` is the payload of its frame."""

    now: float
    boot_id: str
    batch: bytes


class Disconnected(NamedTuple):
    """A producer's connection ended."""

    now: float
    boot_id: str


class Asked(NamedTuple):
    """A reader asked for a model's timing (None: for all models')."""

    now: float
    model_id: str | None
    reset: bool
    reader: str | None
    ack: str | None


Record: TypeAlias = Connected | Applied | Disconnected | Asked
_KINDS: Final[tuple[type[Record], ...]] = (Connected, Applied, Disconnected, Asked)
_NUMBERS: Final = {kind: number for number, kind in enumerate(_KINDS)}
_TYPES: Final[dict[type[Record], tuple[UnionType | type, ...]]] = {
    Connected: (float, bytes),
    Applied: (float, str, bytes),
    Disconnected: (float, str),
    Asked: (float, str | None, bool, str | None, str | None),
}


class BrokenJournalError(Exception):
    """The journal goes on with something that is no record; it ends there."""


class TornJournalError(BrokenJournalError):
    """It ends with a part of a record: nothing was done yet of what that would have said."""


def is_dated(record: Record) -> bool:
    """Whether its time is one that a clock can have."""
    return 0 <= record.now < _MAX_TIME  # false for NaN, too


def encode(record: Record) -> bytes:
    """The record as it stands in the file."""
    payload: bytes = msgpack.packb((_NUMBERS[type(record)], *record))
    length = len(payload).to_bytes(4, "big")
    return length + _checksum(length) + _checksum(payload) + payload


def read_records(data: bytes) -> Iterator[Record]:
    """The records of a journal file's content, in order. Raises `BrokenJournalError` after the
    last whole one where something else follows it, and for whatever is no journal at all."""
    if not data.startswith(MAGIC):
        raise BrokenJournalError("it is no journal of this format")
    at = len(MAGIC)
    while at < len(data):
        left = len(data) - at
        length, sealed, checksum = (data[at + i : at + i + 4] for i in range(0, _HEAD, 4))
        size = int.from_bytes(length, "big")
        if left >= _HEAD and (sealed != _checksum(length) or size > MAX_RECORD):
            raise BrokenJournalError(f"its last {left} bytes are not as they were written")
        if left < _HEAD + size:
            raise TornJournalError(f"its last {left} bytes are no whole record")
        payload = data[at + _HEAD : at + _HEAD + size]
        if checksum != _checksum(payload):
            raise BrokenJournalError(f"its last {left} bytes are not as they were written")
        yield _parse(payload)
        at += _HEAD + size


def _checksum(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(4, "big")


def _parse(payload: bytes) -> Record:
    try:
        number, *fields = msgpack.unpackb(
            payload,
            use_list=False,
            max_array_len=16,
            max_map_len=0,
            max_ext_len=0,
            max_str_len=_MAX_TEXT,
            max_bin_len=MAX_RECORD,
        )
        kind = _KINDS[number]
        fits = len(fields) == len(_TYPES[kind]) and all(map(isinstance, fields, _TYPES[kind]))
    except (ValueError, TypeError, IndexError, RecursionError) as error:
        raise BrokenJournalError(f"a record of it is none: {error}") from None
    if not fits:
        raise BrokenJournalError(f"a record of it is no {kind.__name__}")
    record: Record = kind(*fields)
    return record


class JournalFile:
    """A journal that is being written. One thread. Methods raise `OSError`; after one did, the
    file is not to be used any more: its end may be torn."""

    def __init__(self, path: Path) -> None:
        """Make a new file; there must be none at ``path``. After an error it may be there."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(path, flags, 0o600)
        try:
            status = os.fstat(self._fd)
            self.identity = (status.st_dev, status.st_ino)
            """Device and inode."""
            self.size = 0
            """Bytes written."""
            self._write(MAGIC)
        except BaseException:
            self.close()
            raise

    def append(self, record: Record) -> None:
        """Write one record, in one piece: from then on it survives this process. It is not synced
        to the disk: the machine's own end may cost the last seconds, cut off as a torn tail."""
        self._write(encode(record))

    def end(self) -> None:
        """The state goes on in memory only: whoever finds the file, empty now, is to begin anew.
        That takes neither room on the disk nor a right to the directory. Closes it."""
        try:
            os.ftruncate(self._fd, 0)
        finally:
            self.close()

    def close(self) -> None:
        """Write no more. Never raises: what is in the page cache stays there. Once more does
        nothing: the number may be another file's by then."""
        closing, self._fd = self._fd, -1
        if closing >= 0:
            with contextlib.suppress(OSError):
                os.close(closing)

    def _write(self, data: bytes) -> None:
        written = os.write(self._fd, data)
        if written != len(data):  # how a disk that has just become full says so
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.size += written
