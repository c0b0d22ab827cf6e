"""Shares of a whole, in whole characters."""

from __future__ import annotations

from collections.abc import Sequence


def cells_of(amounts: Sequence[float], width: int) -> list[int]:
    """How many of ``width`` cells each amount has: as near to its share as whole cells are, and
    ``width`` together. All 0 where there is nothing."""
    total = sum(amounts)
    if total <= 0 or width <= 0:
        return [0] * len(amounts)
    exact = [amount / total * width for amount in amounts]
    cells = [int(each) for each in exact]
    by_rest = sorted(range(len(exact)), key=lambda i: cells[i] - exact[i])
    for i in by_rest[: width - sum(cells)]:
        cells[i] += 1
    return cells
