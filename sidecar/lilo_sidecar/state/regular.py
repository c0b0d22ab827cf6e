"""Files that somebody else may have exchanged for a pipe or a device."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def regular_file(path: Path, *, follow: bool) -> Iterator[BinaryIO]:
    """A file, open for reading; ``follow`` a link to it. Raises `OSError`, also for what is no
    regular file; never waits, as a pipe would have it."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    descriptor = os.open(path, flags)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        with open(descriptor, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)
