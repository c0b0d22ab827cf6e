"""Where each tenant's time went as a whole: a stacked bar, and a sentence on what held it back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final

from rich import box
from rich.table import Table
from rich.text import Text

BAR_WIDTH: Final = 60
"""Cells of a bar: with the tenant's name it fits a terminal of 80."""


@dataclass(frozen=True, slots=True)
class _Part:
    label: str
    """As on the sidecar's page and in `lilo-sidecar top`."""
    fill: str
    """Of a different density each, for terminals and files without colours."""
    style: str
    held_back: str
    """How a sentence says that this part held a tenant back, with its percentage."""


PARTS: Final[Mapping[str, _Part]] = {
    "mine_s": _Part("mine", "█", "green", ""),
    "shared_batch_s": _Part(
        "shared batch",
        "▓",
        "cyan",
        "sharing batches: for {} of its time the lane ran the others' part of them",
    ),
    "neighbors_s": _Part(
        "neighbors",
        "▒",
        "blue",
        "its neighbors: for {} of its time it waited while the lane ran others, which is "
        "fair sharing",
    ),
    "overhead_s": _Part(
        "overhead",
        "x",
        "red",
        "the trainer itself: for {} of its time it waited for a lane that was idle",
    ),
    "persist_s": _Part("persist", "░", "yellow", "writing its own weights, for {} of its time"),
    "client_s": _Part(
        "client",
        "·",
        "bright_black",
        "its own loop: for {} of its time nothing of it was in the trainer",
    ),
}
"""The parts of a step, in the order of the bar."""


def step_bars(steps: Mapping[str, Mapping[str, float]]) -> Table:
    """A bar for each tenant: ``steps`` has the seconds of each part by tenant."""
    table = Table(
        title="Where each step went",
        caption=_legend(),
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("tenant", no_wrap=True)
    table.add_column("all of its time", no_wrap=True)
    for name, parts in steps.items():
        table.add_row(name, _bar([parts.get(part, 0.0) for part in PARTS]))
    return table


def sentence(name: str, parts: Mapping[str, float]) -> str:
    """What held a tenant back most, in plain words."""
    wall = sum(parts.get(part, 0.0) for part in PARTS)
    if not wall:
        return f"{name} had nothing in the trainer."
    worst = max((part for part in PARTS if part != "mine_s"), key=lambda p: parts.get(p, 0.0))
    own = _percent(parts.get("mine_s", 0.0) / wall)
    share = _percent(parts.get(worst, 0.0) / wall)
    return (
        f"{name} spent {own} of its time on its own work; what held it back most was "
        f"{PARTS[worst].held_back.format(share)}."
    )


def _bar(seconds: Sequence[float]) -> Text:
    """The parts' cells by the running sum, so that their widths add up to the bar's."""
    total = sum(seconds) or 1.0
    edges = [0, *(round(BAR_WIDTH * done / total) for done in accumulate(seconds))]
    bar = Text()
    for part, (start, end) in zip(PARTS.values(), pairwise(edges), strict=True):
        bar.append(part.fill * (end - start), part.style)
    return bar


def _legend() -> Text:
    legend = Text()
    for part in PARTS.values():
        legend.append(part.fill, part.style)
        legend.append(f" {part.label}   ")
    return legend


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.0f}%"
