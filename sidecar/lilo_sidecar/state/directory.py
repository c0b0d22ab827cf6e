"""Where the state is kept: snapshots, and the journals that go on from them.

Generation N is ``snapshot-N`` and ``journal-N``, which goes on from it. The journals of earlier
generations are kept for whoever wants to look back, as many as MAX_LOOK_BACK and the room allow;
nobody goes on from them. A snapshot whose journal is missing or empty is of the past: the
sidecar went on from it without writing down how. All that stays under MAX_BYTES at every moment:
before something is added, something goes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import stat
from pathlib import Path
from typing import Final, NamedTuple

from ..intake.directories import make_directories
from .files import (
    ASIDE,
    MAX_NUMBER,
    NEW,
    Entry,
    empty_file,
    entries,
    remove_file,
    write_file,
)
from .journal import MAX_RECORD, JournalFile
from .regular import regular_file
from .snapshot import MAX_SNAPSHOT

MAX_BYTES: Final = 32 * 1024 * 1024
"""Of all files together."""
MAX_TAIL: Final = 3 * 1024 * 1024
"""Bytes of a journal, but for its last record."""
MAX_OVERDUE: Final = 512 * 1024
"""Bytes more, while no generation can be begun that would follow it: what MAX_BYTES has left beside
two of the largest generations."""
MAX_LOOK_BACK: Final = 8 * 1024 * 1024
"""Bytes of the journals of earlier generations: about ten minutes of a trainer that reports 150
events a second. They are not worth all the room there is: the directory may be in memory."""
MAX_JOURNALS_BACK: Final = 32
"""And how many of them: a sidecar that is started again and again leaves small ones."""
_MAX_JOURNAL: Final = MAX_TAIL + MAX_OVERDUE + MAX_RECORD + 4096
_MAX_FILE: Final = max(MAX_SNAPSHOT, _MAX_JOURNAL) + 4096
_LOCK: Final = "lock"
_INSTEAD: Final = "give --state-dir a directory of the sidecar's own, which is made if missing"
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


class Generation(NamedTuple):
    """What a sidecar that ended has left: the contents of two files."""

    snapshot: bytes
    journal: bytes
    """Empty if it went on without one."""


class StateDirectory:
    """One directory, used by one sidecar at a time. One thread; methods raise `OSError`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock: int | None = None
        self._number = 0
        """Of the present generation; 0 if there is none."""

    def open(self) -> None:
        """Make the directory if it is missing, and lock it until `close`. Raises `OSError` also
        when another sidecar has it, or others may write to it."""
        self.close()
        make_directories(self._path, shared=False)
        _check(self._path.stat())
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        lock = os.open(self._path / _LOCK, flags, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise OSError(errno.EBUSY, "another sidecar uses the state directory") from None
        except BaseException:
            os.close(lock)
            raise
        self._lock = lock

    def close(self) -> None:
        """Let others use the directory. Never raises."""
        lock, self._lock = self._lock, None
        if lock is not None:
            with contextlib.suppress(OSError):
                os.close(lock)

    @property
    def is_open(self) -> bool:
        """Whether this is the sidecar that uses it. Once somebody removed the lock, another one
        may have come, and nothing in it is this one's to touch."""
        return self._lock is not None and _identity(self._path / _LOCK) == _identity(self._lock)

    def latest(self) -> Generation | None:
        """The newest generation there is. Raises `OSError` for one that cannot be read."""
        snapshots = [e for e in self._entries("") if e.kind == "snapshot"]
        # What is no file is none of ours, unless it stands in the place of the only one.
        found = [e for e in snapshots if e.regular] or snapshots
        if not found:
            return None
        self._number = found[-1].number
        journal = b""
        with contextlib.suppress(FileNotFoundError):
            journal = _content(self._name("journal"))
        return Generation(_content(self._name("snapshot")), journal)

    def set_aside(self) -> None:
        """Keep the newest generation for people to look at; it is never read again. Never
        raises: what cannot be set aside goes when there is a new one."""
        for kind in ("snapshot", "journal"):
            name = self._name(kind)
            with contextlib.suppress(OSError):
                name.rename(name.with_name(f"{name.name}{ASIDE}"))
        self._number = 0

    def begin(self, snapshot: bytes) -> JournalFile:
        """Begin the next generation with a snapshot; its journal, empty. When this raises, the
        one before is still there."""
        found = entries(self._path)
        self._make_room(found, len(snapshot))
        before = self._name("snapshot"), self._name("journal")
        taken = {entry.number for entry in found}
        number = next(n for n in itertools.count(self._number + 1) if n not in taken)
        if number > MAX_NUMBER:
            raise OSError(errno.EOVERFLOW, "there is no number left for a file of the state")
        journal = self._place(number, snapshot)
        self._number = number
        with contextlib.suppress(OSError):  # it goes the next time, or there is no next time
            remove_file(before[0])
            if before[1].lstat().st_size > _MAX_JOURNAL:  # somebody else wrote to it
                remove_file(before[1])
        return journal

    def discard(self) -> None:
        """Remove every state there is: an old one must never be taken for the present one.
        Does what it can, whatever fails, in an order that leaves no moment at which it might be.
        """
        numbers = sorted({self._number, *(entry.number for entry in self._listed())})
        for number in reversed(numbers):
            with contextlib.suppress(OSError):
                empty_file(self._path / f"journal-{number}")  # this will do, if need be
        for number in numbers:
            for name in (f"snapshot-{number}", f"snapshot-{number}{NEW}", f"journal-{number}"):
                _try_to_remove(self._path / name)
        self._number = 0

    def holds(self, journal: JournalFile) -> bool:
        """Whether the file that is written to is still the one that would be read."""
        return self.is_open and _identity(self._name("journal")) == journal.identity

    def _place(self, number: int, snapshot: bytes) -> JournalFile:
        """The journal comes first: a snapshot is never there without it."""
        path = self._path / f"snapshot-{number}"
        new = path.with_name(f"{path.name}{NEW}")
        journal_path = self._path / f"journal-{number}"
        with contextlib.ExitStack() as undo:
            undo.callback(_try_to_remove, new)
            write_file(new, snapshot)
            undo.callback(_try_to_remove, journal_path)
            journal = JournalFile(journal_path)
            undo.callback(journal.close)
            new.rename(path)
            undo.pop_all()
        return journal

    def _name(self, kind: str) -> Path:
        return self._path / f"{kind}-{self._number}"

    def _make_room(self, found: list[Entry], wanted: int) -> None:
        """Let go of what nobody needs; and, the oldest first, of what was set aside or is kept
        for looking back, where it would be too much."""
        kept = []
        back = 0
        for entry in reversed(found):
            if not entry.regular:
                continue
            present = not entry.suffix and entry.number == self._number
            journal = entry.kind == "journal" and not entry.suffix and entry.number <= self._number
            if journal:  # the present one, too: it is of an earlier generation soon
                back += max(entry.size, MAX_LOOK_BACK // MAX_JOURNALS_BACK)
            if present or entry.suffix == ASIDE or (journal and back <= MAX_LOOK_BACK):
                kept.append(entry)
            else:
                remove_file(entry.path)
        size = sum(entry.size for entry in kept) + wanted + _MAX_JOURNAL
        for entry in reversed(kept):
            if size <= MAX_BYTES:
                return
            if entry.suffix == ASIDE or entry.number < self._number:
                remove_file(entry.path)
                size -= entry.size

    def _entries(self, *suffixes: str) -> list[Entry]:
        return [entry for entry in entries(self._path) if entry.suffix in suffixes]

    def _listed(self) -> list[Entry]:
        """What there is to discard, as far as it can be said: a directory that others make
        unreadable, or a process without a descriptor left, must not keep the rest from it."""
        try:
            return self._entries("", NEW)
        except OSError:
            return []


def _check(status: os.stat_result) -> None:
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    if status.st_uid != os.geteuid():
        raise OSError(
            errno.EPERM, f"the state directory belongs to uid {status.st_uid}; {_INSTEAD}"
        )
    if stat.S_IMODE(status.st_mode) & _OTHERS_WRITE:
        # As at the root of a volume that containers share, which takes one in it.
        raise OSError(
            errno.EPERM, f"others may write to the state directory; {_INSTEAD}: one in it will do"
        )


def _identity(file: Path | int) -> tuple[int, int] | None:
    """Which file it is, whatever it is called; None if there is none to be found."""
    try:
        status = os.lstat(file) if isinstance(file, Path) else os.fstat(file)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _content(path: Path) -> bytes:
    """What is in a file, or the beginning of one that is larger than any of ours."""
    with regular_file(path, follow=False) as file:
        return file.read(_MAX_FILE)


def _try_to_remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        remove_file(path)
