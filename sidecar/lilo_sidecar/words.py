"""Numbers in words."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """With as much as matters: ``0.4 s``, ``12 s``, ``3 min``, ``5 h``, ``9 d``."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    for limit, unit, size in ((120, "s", 1), (7200, "min", 60), (172_800, "h", 3600)):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def count(number: int, one: str, many: str) -> str:
    """``1 event``, ``2,000 events``."""
    return f"{number:,} {one if number == 1 else many}"
