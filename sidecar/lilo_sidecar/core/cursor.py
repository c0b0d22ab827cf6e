"""Cursors: what a reader passes back to say which interval it has received."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

MAX_CURSOR: Final = 64
"""Characters."""
CURSOR_FORM: Final = re.compile(r"([0-9a-f]{1,32})\.([0-9]{1,18})", re.ASCII)


class Cursor(NamedTuple):
    """A mark of one state of the sidecar."""

    epoch: str
    """Hexadecimal; another one after the state was lost."""
    number: int
    """Of the mark; 0 is the beginning."""

    def __str__(self) -> str:
        return f"{self.epoch}.{self.number}"

    @classmethod
    def parse(cls, text: str) -> Cursor | None:
        """The cursor in a text that `str` made; None in any other."""
        found = CURSOR_FORM.fullmatch(text)
        return None if found is None else cls(found[1], int(found[2]))
