"""docs/OPERATING.md says what the commands say."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

from lilo_sidecar.options import parse
from lilo_sidecar.options_asking import AskOptions
from lilo_sidecar.top.figures import document
from lilo_sidecar.top.glyphs import UNICODE
from lilo_sidecar.top.overview import overview_of
from lilo_sidecar.top.picture import picture
from support.checking import lines_of_check
from support.forked import ForkedProcess
from support.overviews import sample_overview
from support.producer import Producer
from support.sidecar import running

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "OPERATING.md").read_text()
BLOCKS = re.findall(r"^```\w*\n(.*?)\n```$", PAGE, re.DOTALL | re.MULTILINE)
URL = "http://127.0.0.1:9411"


def sample(beginning: str) -> str:
    """The sample on the page that begins like this."""
    (found,) = (block for block in BLOCKS if block.startswith(beginning))
    return str(found)


def test_picture_on_the_page() -> None:
    """Is what `top` draws."""
    drawn = picture(overview_of(sample_overview()), URL, (80, 24), UNICODE).plain
    assert [line.rstrip() for line in drawn.split("\n")] == sample("lilo-sidecar 0.1.0").split("\n")


def test_findings_on_the_page(tmp_path: Path) -> None:
    """Are what `check` says, but for the address, the path, and how long and how much."""
    path = tmp_path / "timing.sock"
    with running(ForkedProcess("serve", "--socket", path)) as sidecar:
        (line,) = lines_of_check("--socket", path)
        line = re.sub(r"started \S+ \w+ ago", "started 3 min ago", line)
        assert line.replace(str(path), "/run/lilo/timing.sock") == sample("no_trainer:")
        with Producer(path) as trainer:
            trainer.greet()
            trainer.work()
            (line,) = lines_of_check("--socket", path)
        assert line.replace(sidecar.url, URL).replace("1 event ", "693 events ") == sample("All is")


def test_every_code_is_on_the_page() -> None:
    """And no other."""
    sources = sorted((ROOT / "sidecar/lilo_sidecar/check").glob("*_findings.py"))
    text = "".join(path.read_text() for path in sources)
    codes = re.findall(r'(?:Finding\(|return \(|return)\s+"([a-z_]+)",', text)
    (table,) = re.findall(r"\| code \|.*?\n\n", PAGE, re.DOTALL)
    on_page = re.findall(r"`([a-z_]+)`", table)
    assert len(codes) > 30
    assert sorted(codes) == sorted(on_page)


def test_fields_of_the_document_are_on_the_page() -> None:
    """At every depth."""

    def names(value: object) -> set[str]:
        if isinstance(value, list):
            return set().union(*map(names, value))
        if isinstance(value, dict):
            return set(value).union(*map(names, value.values()))
        return set()

    content = json.loads(document(overview_of(sample_overview()), URL))
    delivery = set(content.pop("delivery"))  # and the journal: in NUMBERS.md
    interval = {f"{part}_s" for part in overview_of(sample_overview()).models[0].parts._fields}
    (table,) = re.findall(r"\| field \|.*?\n\n", PAGE, re.DOTALL)
    on_page = set(re.findall(r"`([a-z_]+)`", table))
    numbers = (ROOT / "docs" / "NUMBERS.md").read_text()
    assert names(content) - on_page - interval == {"writing", "reason"}
    assert all(f"`{name}`" in numbers for name in delivery | interval)


def test_commands_on_the_page_are_commands() -> None:
    """Every line of its shell snippets is taken by the command line."""
    lines = "".join(re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)).splitlines()
    assert len(lines) >= 3
    for line in lines:
        name, *arguments = shlex.split(line, comments=True)
        assert name == "lilo-sidecar"
        assert isinstance(parse(arguments), AskOptions)
