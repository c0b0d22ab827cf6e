"""The Python, and the commands, that a page of the documents shows."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def snippet(page: str, heading: str) -> str:
    """The first Python snippet below a heading of ``docs/<page>``."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    _, found, below = text.partition(f"\n## {heading}\n")
    assert found, f"docs/{page} has no heading {heading!r}"
    code = re.search(r"```python\n(.*?)```", below.partition("\n## ")[0], re.DOTALL)
    assert code is not None, f"no Python below {heading!r} of docs/{page}"
    return code[1]


def commands(page: str) -> list[str]:
    """The lines of all shell snippets of ``docs/<page>``, in order."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / page).read_text("utf-8"), re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]
