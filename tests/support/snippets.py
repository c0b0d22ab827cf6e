"""What a page of the documentation tells its readers to run."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def snippets(page: str, language: str) -> list[str]:
    """The blocks of that language in a page of ``docs/``, in order."""
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
