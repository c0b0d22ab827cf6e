"""Others' words at a terminal: what a trainer calls its models, what a server says."""

from __future__ import annotations

from typing import Final

MAX_SHOWN: Final = 200
"""Characters of others' words in one line."""
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


def shown(text: object, limit: int = MAX_SHOWN) -> str:
    """The text in one line, without anything that a terminal would obey: no control characters,
    escape sequences, line breaks or marks that turn the direction of writing. Cut to ``limit``
    characters, of which the last tells that there were more. Never raises for a string."""
    characters = str(text)
    cut = (
        characters[: limit - 1] + "\N{HORIZONTAL ELLIPSIS}"
        if len(characters) > limit
        else characters
    )
    return "".join(c if c.isprintable() else _REPLACEMENT for c in cut)
