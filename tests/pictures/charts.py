"""``docs/pictures/wandb.svg``: what the demonstration's tenants logged, as W&B's panels show it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pictures.panels import Panel, Rows, draw, lines, stack
from pictures.runs import rows_of_tenants

SECONDS: Final = 20.0
"""Of training: some dozens of steps, and a picture of some dozens of kilobytes."""
SHOWN: Final = "tiny"
"""The tenant whose step is taken apart: it shares its batches, and waits for a heavy one."""
_BLUE, _PALE, _ORANGE, _RED = "#0b62b8", "#4f9bd3", "#c77800", "#c8382b"
_PURPLE, _GREY, _GREEN = "#8a55b5", "#a3abb6", "#15803d"
"""The colours of the sidecar's page: what is orange there is orange here."""
STEP: Final = {
    "lilo/step.mine_s": ("mine_s", _BLUE),
    "lilo/step.shared_batch_s": ("shared_batch_s", _PALE),
    "lilo/step.neighbors_s": ("neighbors_s", _ORANGE),
    "lilo/step.overhead_s": ("overhead_s", _RED),
    "lilo/step.persist_s": ("persist_s", _PURPLE),
    "lilo/step.client_s": ("client_s", _GREY),
}
_WAIT: Final = "lilo/forward_backward.queue_wait"
WAIT: Final = {
    f"{_WAIT}.self_s": ("self_s", _BLUE),
    f"{_WAIT}.neighbors_s": ("neighbors_s", _ORANGE),
    f"{_WAIT}.overhead_s": ("overhead_s", _RED),
}


def panels(runs: Mapping[str, Rows]) -> list[Panel]:
    """The four panels that docs/CHARTS.md tells how to make. ``runs`` has rows by tenant."""
    rows = runs[SHOWN]
    colours = (_RED, _BLUE, _GREEN)
    return [
        stack(f"{SHOWN}: lilo/step.*_s", "seconds of a step, stacked", rows, STEP),
        stack(f"{SHOWN}: {_WAIT}.*_s", "seconds, stacked", rows, WAIT),
        lines("lilo/step.neighbors_fraction", "of the step", runs, colours),
        lines("lilo/forward_backward.execute.mean_batch", "commands in a batch", runs, colours),
    ]


def write(docs: Path, runs: Mapping[str, Rows]) -> None:
    """Draw what the runs' files hold."""
    path = docs / "pictures" / "wandb.svg"
    path.parent.mkdir(parents=True, exist_ok=True)
    caption = "Three tenants of one trainer (make pictures), from the files of their offline runs"
    path.write_text(draw(panels(runs), caption))


def make(docs: Path) -> None:
    """Let the tenants train, and draw what they logged."""
    with tempfile.TemporaryDirectory() as directory:
        write(docs, rows_of_tenants(SECONDS, Path(directory)))
