"""What a file system refuses, or never comes to an end with."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

_NOBODY = 65534
_TIMEOUT = 20.0
"""Seconds; what is waited for takes milliseconds."""


@contextlib.contextmanager
def in_time() -> Iterator[None]:
    """Raises `TimeoutError` in what waits for somebody who never comes."""

    def give_up(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, _TIMEOUT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def place_of_a_user() -> Iterator[Path]:
    """An empty directory of a user whom the modes of files apply to, as whom this process goes on
    until the end of the context."""
    was = os.geteuid()
    if was == 0:
        os.seteuid(_NOBODY)
    try:
        place = Path(tempfile.mkdtemp())
        try:
            yield place
        finally:
            for path in (place, *place.iterdir()):
                path.chmod(0o700)
            shutil.rmtree(place)
    finally:
        os.seteuid(was)


@contextlib.contextmanager
def full_disk(size: int = 10) -> Iterator[None]:
    """No file grows past a few bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextlib.contextmanager
def no_descriptors() -> Iterator[None]:
    """None is left: what is open stays open, and nothing else can be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def descriptors() -> int:
    """How many this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))
