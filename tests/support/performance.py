"""The measured figures that limits are set by, as docs/PERFORMANCE.md has them."""

from __future__ import annotations

import re
from pathlib import Path

_PAGE = Path(__file__).parents[2] / "docs" / "PERFORMANCE.md"


class Measured:
    """What the last published run of the benchmark found."""

    def __init__(self) -> None:
        page = _PAGE.read_text()
        self.full_mib = _first(r"\| resident memory, full: .*?\| ([\d.,]+) MiB", page)
        """Memory of a sidecar that holds 256 models with 32 phases and 8 readers each."""
        self.events_per_core = _first(
            r"\| sidecar ingest, 256 models .*?\| ([\d.,]+) events/s", page
        )
        """Events a second that one core takes in, of 256 models."""


def _first(pattern: str, page: str) -> float:
    found = re.search(pattern, page)
    assert found is not None, f"docs/PERFORMANCE.md has no row like {pattern}"
    return float(found[1].replace(",", ""))
