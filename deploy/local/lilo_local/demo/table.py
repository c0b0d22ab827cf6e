"""The closing table: where each tenant's time went, as the timing answers tell it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich import box
from rich.table import Table

PARTS: Final = {
    "queue_wait": "waited",
    "execute": "ran",
    "capture": "captured",
    "device": "on device",
    "persist": "written",
}
"""What becomes of a command, in the order it happens, in a word each."""
_FIRST: Final = ("accept", "forward_backward", "optim_step", "forward")
"""The operations of a training loop in the order it has them; others follow by name."""
_CAPTION: Final = (
    "Each command waited for its turn, then ran on the model; of saves, the weights were\n"
    "captured from the model and written beside it. batch: commands in one pass over the model."
)


@dataclass(frozen=True, slots=True)
class Section:
    """The rows of one tenant."""

    title: str
    phases: Mapping[str, Mapping[str, float]]
    """By phase name: ``count``, ``total_s``, ``mean_s``, ``max_s``, ``mean_batch``."""


def closing_table(sections: Sequence[Section]) -> Table:
    """A row for each phase of each section."""
    table = Table(
        title="Where the time went",
        caption=_CAPTION,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("tenant and operation", no_wrap=True)
    table.add_column("phase", no_wrap=True)
    for name in ("count", "mean", "max", "batch"):
        table.add_column(name, justify="right", no_wrap=True)
    for section in sections:
        table.add_row(f"[bold]{section.title}[/bold]")
        before = ""
        for phase in sorted(section.phases, key=_order):
            operation, _, part = phase.rpartition(".")
            figures = section.phases[phase]
            table.add_row(
                "" if operation == before else f"  {operation}",
                PARTS.get(part, part),
                f"{figures['count']:.0f}",
                duration(figures["mean_s"]),
                duration(figures["max_s"]),
                f"{figures['mean_batch']:.2f}" if part == "execute" else "",
            )
            before = operation
        table.add_section()
    return table


def duration(seconds: float) -> str:
    """In milliseconds below a second."""
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"


def _order(phase: str) -> tuple[int, str, int]:
    operation, _, part = phase.rpartition(".")
    place = _FIRST.index(operation) if operation in _FIRST else len(_FIRST)
    return place, operation, list(PARTS).index(part) if part in PARTS else len(PARTS)
