"""State directories and sockets of `lilo-sidecar run` in the place where those are that nobody
named: each goes with its run, and what a run that was killed has left goes with the next one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .errors import StartError
from .intake.directories import own_directory
from .intake.listening import remove_stale
from .whereabouts import url_file

MAX_REMOVED: Final = 64
"""Runs whose leftovers one run looks at, since its command waits meanwhile. Any of them, so that
those which have to stay are in nobody's way for ever."""
_NAME: Final = re.compile(r"run-([1-9][0-9]{0,6})\.(?:state|sock|sock\.url)", re.ASCII)
_LOCK: Final = "lock"
_MARK: Final = "of-a-run"
"""An empty file that tells the directory from one that somebody named as if it were a run's."""
_STATE_FILES: Final = ("snapshot-*", "journal-*", _LOCK, _MARK)


@contextlib.contextmanager
def own_state(path: Path, *, shared: bool) -> Iterator[None]:
    """The state directory is this run's until the end of the context, and then goes: as far as it
    holds what a sidecar keeps there, and nothing else. It begins empty, and what dead runs left
    beside it goes, too. With ``shared`` other users reach the directory that it is in.

    A run of another container may share the place and have the same process id: its directory is
    left alone. Never raises: a directory that stays does no harm.
    """
    with contextlib.ExitStack() as held:
        mine = False
        with contextlib.suppress(OSError, StartError):
            place = held.enter_context(own_directory(path.parent, shared=shared, warn=False))
            _remove_dead(path, place)
            with contextlib.suppress(FileExistsError):
                path.mkdir(0o700)
            # While the sidecar is away, to be started again, nothing else says that it will.
            mine = held.enter_context(_claimed(path))
            if mine:
                _empty(path)
                (path / _MARK).touch()
        try:
            yield
        finally:
            if mine:
                _remove(path)


def _remove_dead(own: Path, place: int) -> None:
    found = [_NAME.fullmatch(name) for name in os.listdir(place)]
    numbers = {int(match[1]) for match in found if match is not None}
    dead = [number for number in sorted(numbers - {os.getpid()}) if not _lives(number)]
    sockets = []
    for number in random.sample(dead, min(len(dead), MAX_REMOVED)):
        state = own.with_name(f"run-{number}.state")
        with contextlib.suppress(OSError), _claimed(state) as free:
            if free and (state / _MARK).exists():
                _remove(state)
                sockets.append(state.with_suffix(".sock"))
    for socket in remove_stale(sockets, place):
        with contextlib.suppress(OSError):
            url_file(socket).unlink()


@contextlib.contextmanager
def _claimed(state: Path) -> Iterator[bool]:
    """Whether neither a run nor a sidecar has the directory: until the end of the context no run
    takes it. The locks are the kernel's, which knows the processes of every container and lets go
    of those of a killed one. Raises `OSError` where a link or something else is, or nothing."""
    with contextlib.ExitStack() as held:
        try:
            directory = _locked(held, state, os.O_DIRECTORY)
            with contextlib.suppress(FileNotFoundError):
                _locked(held, state / _LOCK, 0)
            # Another run may have removed it, and its sidecar made one anew, before it was locked.
            free = os.path.samestat(os.fstat(directory), state.lstat())
        except BlockingIOError:
            free = False
        yield free


def _locked(held: contextlib.ExitStack, path: Path, flags: int) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | flags)
    held.callback(os.close, descriptor)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return descriptor


def _lives(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _remove(state: Path) -> None:
    with contextlib.suppress(OSError):
        _empty(state)
        state.rmdir()


def _empty(state: Path) -> None:
    for entry in list(state.iterdir()):
        if any(map(entry.match, _STATE_FILES)):
            with contextlib.suppress(OSError):  # a directory by that name is not a sidecar's
                entry.unlink()
