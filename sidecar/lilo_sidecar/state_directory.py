"""Where the state is kept: snapshots, and the journals that go on from them.

Generation N is ``snapshot-N`` and ``journal-N``, which goes on from it; ``journal-N-1`` is kept
for whoever wants to look back. All that stays under MAX_BYTES at every moment: before something
is added, something goes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
from collections.abc import Collection
from pathlib import Path
from typing import Final, NamedTuple

from .journal import MAX_RECORD, JournalFile
from .snapshot import MAX_SNAPSHOT

MAX_BYTES: Final = 32 * 1024 * 1024
"""Of all files together."""
MAX_TAIL: Final = 3 * 1024 * 1024
"""Bytes of a journal, but for its last record."""
_MAX_FILE: Final = max(MAX_SNAPSHOT, MAX_TAIL) + MAX_RECORD + 4096
_LOCK: Final = "lock"
_NEW: Final = ".new"
_ASIDE: Final = ".aside"
_FILE: Final = re.compile(r"(snapshot|journal)-([0-9]{1,18})(\.new|\.aside)?", re.ASCII)
_OTHERS_WRITE: Final = 0o022


class Generation(NamedTuple):
    """What a sidecar that ended has left: the contents of two files."""

    snapshot: bytes
    journal: bytes


class _File(NamedTuple):
    path: Path
    kind: str
    number: int
    suffix: str


class StateDirectory:
    """One directory, used by one sidecar at a time. One thread; methods raise `OSError`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock: int | None = None
        self._number = 0
        """Of the present generation."""

    def open(self) -> None:
        """Make the directory if it is missing, and lock it until `close`. Raises `OSError` also
        when another sidecar has it, or others may write to it."""
        self.close()
        self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = self._path.stat()
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & _OTHERS_WRITE:
            raise OSError(errno.EPERM, "others may write to the state directory")
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
        """Let others use the directory."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def is_open(self) -> bool:
        """Whether this is the sidecar that uses it."""
        return self._lock is not None

    def latest(self) -> Generation | None:
        """The newest generation there is."""
        numbers = [file.number for file in self._files(("",)) if file.kind == "snapshot"]
        if not numbers:
            return None
        self._number = max(numbers)
        journal = b""
        with contextlib.suppress(FileNotFoundError):  # it ended between the two
            journal = _content(self._name("journal"))
        return Generation(_content(self._name("snapshot")), journal)

    def set_aside(self) -> None:
        """Keep the newest generation for people to look at; it is never read again."""
        for kind in ("snapshot", "journal"):
            name = self._name(kind)
            with contextlib.suppress(FileNotFoundError):
                name.rename(name.with_name(f"{name.name}{_ASIDE}"))

    def begin(self, snapshot: bytes) -> JournalFile:
        """Begin the next generation with a snapshot; its journal, empty. The one before ends
        here, whether or not this raises."""
        self._make_room(len(snapshot))
        before, self._number = self._number, self._number + 1
        new = self._path / f"snapshot-{self._number}{_NEW}"
        try:
            _write(new, snapshot)
            new.rename(self._name("snapshot"))
        except OSError:
            with contextlib.suppress(OSError):
                new.unlink()
            raise
        journal = JournalFile(self._name("journal"))
        for file in self._files(("",)):
            if file.kind == "snapshot" and file.number <= before:
                file.path.unlink()
        return journal

    def discard(self) -> None:
        """Remove every state there is: an old one must never be taken for the present one."""
        for file in self._files(("", _NEW)):
            file.path.unlink()

    def holds(self, journal: JournalFile) -> bool:
        """Whether the file that is written to is still the one that would be read."""
        try:
            status = self._name("journal").stat()
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == journal.identity

    def _name(self, kind: str) -> Path:
        return self._path / f"{kind}-{self._number}"

    def _make_room(self, wanted: int) -> None:
        """Let go of what is older than the present generation, and of what was set aside where
        it would be too much."""
        for file in self._files():
            old = file.suffix != _ASIDE and (file.number, file.suffix) != (self._number, "")
            if old or (file.suffix and self._bytes() + wanted + MAX_TAIL + MAX_RECORD > MAX_BYTES):
                file.path.unlink()

    def _bytes(self) -> int:
        return sum(file.path.stat().st_size for file in self._files())

    def _files(self, suffixes: Collection[str] = ("", _NEW, _ASIDE)) -> list[_File]:
        found = []
        for path in self._path.iterdir():
            match = _FILE.fullmatch(path.name)
            if match and (match[3] or "") in suffixes:
                found.append(_File(path, match[1], int(match[2]), match[3] or ""))
        return found


def _content(path: Path) -> bytes:
    """What is in a file, or the beginning of one that is larger than any of ours."""
    with path.open("rb") as file:
        return file.read(_MAX_FILE)


def _write(path: Path, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, 0o600), "wb", buffering=0) as file:
        while data:
            data = data[file.write(data) :]
