"""What the documents refer to is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "deploy").glob("*/README.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link of a page is a file of the project."""
    links = re.findall(r"\]\(([^)#:]+)\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_snippets_compile(page: Path) -> None:
    """Python that a reader copies is Python."""
    for snippet in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        # A snippet may stand for the inside of a coroutine.
        body = "async def snippet():\n" + "".join(f"    {line}\n" for line in snippet.splitlines())
        compile(body, str(page), "exec")


def test_tests_named_as_proof_exist() -> None:
    """Each bound's row names a test, or a file of tests, that there is."""
    text = (ROOT / "docs" / "RELIABILITY.md").read_text()
    sources = "".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    names = re.findall(r"`(test_\w+)`", text)
    assert len(names) >= 15
    assert [name for name in names if f"def {name}(" not in sources] == []
    files = re.findall(r"`(tests/[\w/]+\.py)`", text)
    assert [file for file in files if not (ROOT / file).exists()] == []


def test_commands_of_the_quick_start_exist() -> None:
    """The two commands that a newcomer types are targets of the Makefile."""
    quick_start = re.search(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert quick_start is not None
    targets = re.findall(r"^make (\w+)", quick_start[1], re.MULTILINE)
    assert targets == ["demo", "test"]
    makefile = (ROOT / "Makefile").read_text()
    assert all(f"\n{target}:" in makefile for target in targets)
