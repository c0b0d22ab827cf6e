"""A lane's last minutes, in one row of cells. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from .glyphs import Glyphs
from .overview import WINDOW, Lane, Work, overlap

HALF: float = 0.5


def timeline(
    lane: Lane, now: float, width: int, letters: Mapping[str, str], glyphs: Glyphs
) -> list[tuple[str, str | None]]:
    """For each cell, from WINDOW seconds ago to now: its character, and the model that the lane
    worked most for in it.

    The letter of that model is a capital where the lane was busy for half of the cell or more. A
    cell that the sidecar does not know anything of any more is a space.
    """
    size = WINDOW / width
    start = now - WINDOW
    shares: list[dict[str | None, float]] = [{} for _ in range(width)]
    for work in lane.work:
        first = max(0, int((work.start - start) / size))
        for at in range(first, min(width, int((work.end - start) / size) + 1)):
            _credit(shares[at], work, start + at * size, start + (at + 1) * size)
    cells: list[tuple[str, str | None]] = []
    for at, share in enumerate(shares):
        if not share:
            unknown = start + (at + 1) * size <= lane.known_from
            cells.append((" " if unknown else glyphs.idle, None))
            continue
        model = max(share, key=lambda each: share[each])
        letter = glyphs.running if model is None else letters.get(model, glyphs.other)
        busy = sum(share.values()) >= HALF * size
        cells.append((letter.upper() if busy else letter, model))
    return cells


def _credit(shares: dict[str | None, float], work: Work, start: float, end: float) -> None:
    """To each model its part of the work's time between; to None, of work that still runs."""
    seconds = overlap(work, start, end)
    if seconds > 0:
        for model in work.models or (None,):
            shares[model] = shares.get(model, 0.0) + seconds / max(1, len(work.models))
