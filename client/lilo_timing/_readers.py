"""Names of readers: whose intervals a request is about.

A sidecar keeps the intervals of each reader of a model apart, so that whoever else reads the
model takes nothing from it.
"""

from __future__ import annotations

import os
import re
import weakref
from typing import Final

from ._runs import Run
from ._shown import shown
from .errors import InvalidCallError

MAX_READER: Final = 64
"""Characters, as the sidecar has it."""
_FORM: Final = re.compile(rf"[A-Za-z0-9._-]{{1,{MAX_READER}}}", re.ASCII)
_UNIQUE_BYTES: Final = 8
"""Enough that no two processes draw the same, and that nobody guesses one."""


def checked_reader(reader: object) -> str | None:
    """A caller's reader; None is none. Raises `InvalidCallError` for what no sidecar takes."""
    if reader is None:
        return None
    if not isinstance(reader, str) or not _FORM.fullmatch(reader):
        raise InvalidCallError(
            f"reader is {shown(reader)}; pass 1 to {MAX_READER} characters of A-Z a-z 0-9 . _ -, "
            "or None for a reader of this process's own"
        )
    return reader


def unique_reader(role: str) -> str:
    """A reader that nobody else has; ``role`` tells people what it is for."""
    return f"{role}-{os.urandom(_UNIQUE_BYTES).hex()}"


class RunReaders:
    """The reader of each run, and the one of reports without a run. Made anew in a forked child,
    which thereby has readers of its own. One thread."""

    def __init__(self) -> None:
        self._without_run = unique_reader("loop")
        self._of_runs: weakref.WeakKeyDictionary[Run, str] = weakref.WeakKeyDictionary()

    def of(self, run: Run | None) -> str:
        """The same one each time, for as long as the run exists."""
        if run is None:
            return self._without_run
        reader = self._of_runs.get(run)
        if reader is None:
            reader = self._of_runs[run] = unique_reader("loop")
        return reader
