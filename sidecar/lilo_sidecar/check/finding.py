"""One thing that is wrong."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """In words for people, each a sentence or two; ``code`` is for programs and stays as it is."""

    code: str
    what: str
    """What is wrong."""
    why: str
    """Why that matters."""
    do: str
    """What to do about it."""
