"""The files of a state directory: their names, and how they are written and removed.

Somebody else may have put anything there: what is no regular file is never opened, followed,
counted or removed.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from pathlib import Path
from typing import Final, NamedTuple

NEW: Final = ".new"
ASIDE: Final = ".aside"
MAX_NUMBER: Final = 10**9
"""Of a generation: one every second for thirty years. A name with another number is not ours."""
_NAME: Final = re.compile(r"(snapshot|journal)-([0-9]{1,18})(\.new|\.aside)?", re.ASCII)


class Entry(NamedTuple):
    """What is there by a name of ours."""

    path: Path
    kind: str
    """``snapshot`` or ``journal``."""
    number: int
    """Of the generation."""
    suffix: str
    size: int
    """Bytes."""
    regular: bool
    """Whether it is a file: only then is it one of ours."""


def entries(directory: Path) -> list[Entry]:
    """All that is there by a name of ours, in the order of their numbers, the snapshot first.
    Raises `OSError`."""
    found = []
    with os.scandir(directory) as scan:
        for each in scan:
            match = _NAME.fullmatch(each.name)
            if match is None or int(match[2]) > MAX_NUMBER:
                continue
            with contextlib.suppress(FileNotFoundError):
                status = each.stat(follow_symlinks=False)
                entry = Entry(
                    directory / each.name,
                    match[1],
                    int(match[2]),
                    match[3] or "",
                    status.st_size,
                    stat.S_ISREG(status.st_mode),
                )
                found.append(entry)
    return sorted(found, key=lambda entry: (entry.number, entry.kind != "snapshot"))


def write_file(path: Path, data: bytes) -> None:
    """Make a new file; there must be none at ``path``. Raises `OSError`; a part of it may be
    there then."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, 0o600), "wb", buffering=0) as file:
        while data:
            data = data[file.write(data) :]


def empty_file(path: Path) -> None:
    """Take all out of a file, which needs no descriptor, no room, and no right to its directory.
    Does nothing to what is no regular file. Raises `OSError`."""
    if stat.S_ISREG(path.lstat().st_mode):
        os.truncate(path, 0)


def remove_file(path: Path) -> None:
    """Remove a file; leave alone what is none. Raises `OSError`."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISREG(path.lstat().st_mode):
            path.unlink()
