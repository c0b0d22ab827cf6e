"""The characters and colours of the picture: where one is missing, the other tells."""

from __future__ import annotations

from string import ascii_lowercase
from typing import Final, NamedTuple

NAMES: Final = ("mine", "shared batch", "neighbors", "overhead", "persist", "client")
"""Of the parts of a step, in the order of `Parts`."""
STYLES: Final = ("green", "cyan", "yellow", "red", "magenta", "bright_black")
"""Of the terminal's own sixteen colours, which its user has made readable."""
LETTERS: Final = ascii_lowercase
"""Of the models in a lane's timeline; those that come after have none."""


class Glyphs(NamedTuple):
    """One character for each thing."""

    parts: str
    """In the order of `NAMES`."""
    idle: str
    """A lane did nothing."""
    running: str
    """A lane works, and for whom is heard at the end."""
    other: str
    """A lane worked for a model without a letter."""
    ellipsis: str
    dot: str
    """Between two things in a line."""


UNICODE: Final = Glyphs("█▓▒x░·", "·", "▸", "+", "…", "·")
ASCII: Final = Glyphs("#+=x-.", ".", ">", "+", "~", "|")


def glyphs_for(encoding: str) -> Glyphs:
    """Those that a terminal of that encoding can show."""
    try:
        "".join(UNICODE).encode(encoding)
    except (UnicodeError, LookupError):
        return ASCII
    return UNICODE
