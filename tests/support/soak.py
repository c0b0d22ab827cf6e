"""How long the tests that could go on for ever go on."""

from __future__ import annotations

import os

SOAKING = os.environ.get("LILO_SOAK", "") not in ("", "0")
"""Whether this is `make soak`: the same tests, for as long as it takes to be sure."""


def rounds(usual: int, *, soak: int) -> int:
    """How often to do something."""
    return soak if SOAKING else usual
