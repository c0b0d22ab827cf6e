"""What a page tells its reader to type."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def snippets(page: Path, language: str) -> list[str]:
    """The page's blocks of code in that language."""
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def commands(page: Path) -> list[str]:
    """The shell commands of a page, each in one line, without comments."""
    text = "\n".join(snippets(page, "sh")).replace("\\\n", " ")
    lines = (re.sub(r"(^|\s)# .*", "", line).strip() for line in text.splitlines())
    return [" ".join(line.split()) for line in lines if line]
