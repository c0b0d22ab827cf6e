"""The table, on the terminal and in the document."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table

from bench.plots import draw

_BEGIN, _END = "<!-- written by make bench -->", "<!-- until here -->"


def table(result: dict[str, Any]) -> Table:
    """For the terminal."""
    shown = Table(title="lilo-timing: what it costs", title_justify="left")
    for head in ("figure", "measured", "compared with", "measured", "ratio", "to reach", ""):
        shown.add_column(head, justify="right" if head in ("measured", "ratio") else "left")
    for figure in result["figures"]:
        colour = {True: "green", False: "red", None: "dim"}[figure["reached"]]
        verdict = f"[{colour}]{_verdict(figure)}[/]"
        shown.add_row(*_cells(figure), verdict, style=None if figure["bounds"] else "dim")
    return shown


def publish(result: dict[str, Any], docs: Path) -> None:
    """Into ``PERFORMANCE.md``, between its two marks, and into ``performance/*.svg``."""
    page = docs / "PERFORMANCE.md"
    before, _, rest = page.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    page.write_text(f"{before}{_BEGIN}\n{_markdown(result)}\n{_END}{after}")
    directory = docs / "performance"
    directory.mkdir(exist_ok=True)
    for curve in result["curves"]:
        (directory / f"{curve['name']}.svg").write_text(draw(curve))


def _markdown(result: dict[str, Any]) -> str:
    machine = result["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    lines = [
        "",
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB; "
        f"{machine['system']}; Python {machine['python']}; {packages}.",
        f"Load average before: {machine['load'][0]}; the run took {result['seconds']:.0f} s.",
        "",
        "| figure | measured | compared with | measured | ratio | to reach | |",
        "|---|--:|---|--:|--:|---|---|",
    ]
    lines += [
        "| " + " | ".join((*_cells(figure), _verdict(figure))) + " |"
        for figure in result["figures"]
    ]
    lines.append("")
    return "\n".join(lines)


def _cells(figure: dict[str, Any]) -> tuple[str, ...]:
    ratio = figure["ratio"]
    return (
        f"{figure['name']} ({figure['note']})" if figure["note"] else figure["name"],
        _spread(figure["ours"], figure["unit"]),
        figure["comparison"],
        "" if figure["theirs"] is None else _spread(figure["theirs"], figure["unit"]),
        ""
        if ratio is None
        else f"{_short(ratio['median'])} ({_short(ratio['low'])} to {_short(ratio['high'])})",
        ", ".join(figure["bounds"]),
    )


def _verdict(figure: dict[str, Any]) -> str:
    return {True: "reached", False: "not reached", None: ""}[figure["reached"]]


def _spread(spread: dict[str, float], unit: str) -> str:
    lower, median, upper = (_short(spread[name]) for name in ("lower", "median", "upper"))
    return f"{median} {unit}" if lower == upper else f"{median} {unit} ({lower} to {upper})"


def _short(value: float) -> str:
    """Three digits or so; four about one, where they matter."""
    if 0.95 <= value <= 1.05:
        return f"{value:.4f}"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
