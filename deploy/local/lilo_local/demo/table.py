"""The closing table: where each tenant's time went, as the timing answers tell it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.table import Table

PARTS: Final = {
    "queue_wait": "waited for its turn",
    "execute": "ran",
    "capture": "weights copied",
    "persist": "weights written",
}
"""The phases of an operation, in the order they happen, and what they mean."""
_WITH_BATCHES: Final = ("execute",)


@dataclass(frozen=True, slots=True)
class Section:
    """The rows of one tenant, or of a whole trainer."""

    title: str
    phases: Mapping[str, Mapping[str, float]]
    """By phase name: ``count``, ``total_s``, ``mean_s``, ``max_s``, ``mean_batch``."""


def closing_table(sections: Sequence[Section]) -> Table:
    """A row for each phase of each section."""
    table = Table(
        title="Where the time went",
        caption="batch factor: commands that ran together, in one pass over the model",
    )
    table.add_column("tenant", style="bold")
    table.add_column("operation")
    table.add_column("phase")
    for name in ("count", "mean", "max", "batch factor"):
        table.add_column(name, justify="right")
    for section in sections:
        title = section.title
        operation_before = ""
        for phase in sorted(section.phases, key=_order):
            operation, _, part = phase.rpartition(".")
            figures = section.phases[phase]
            table.add_row(
                title,
                "" if operation == operation_before else operation,
                PARTS.get(part, part),
                f"{figures['count']:.0f}",
                duration(figures["mean_s"]),
                duration(figures["max_s"]),
                f"{figures['mean_batch']:.2f}" if part in _WITH_BATCHES else "",
            )
            title, operation_before = "", operation
        table.add_section()
    return table


def duration(seconds: float) -> str:
    """In milliseconds below a second."""
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"


def _order(phase: str) -> tuple[bool, str, int]:
    operation, _, part = phase.rpartition(".")
    position = list(PARTS).index(part) if part in PARTS else len(PARTS)
    return operation != "accept", operation, position
