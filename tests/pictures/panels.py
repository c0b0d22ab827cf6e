"""Panels as W&B draws them: metrics of a run against ``lilo/step``, stacked or as lines. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from xml.etree import ElementTree as ET

from bench.plots import text, ticks

X: Final = "lilo/step"
_WIDTH, _HEIGHT = 480, 290
"""Of one panel."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 14, 62, 40
_COLUMNS: Final = 2
_TICKS: Final = 6
"""On the x-axis."""

Rows = Sequence[Mapping[str, Any]]
"""Of one run's history."""


@dataclass(frozen=True, slots=True)
class Line:
    """One metric of one run, or one layer of a stack."""

    label: str
    colour: str
    points: tuple[tuple[float, float], ...]
    """Steps and values."""


@dataclass(frozen=True, slots=True)
class Panel:
    """What is in one frame."""

    title: str
    unit: str
    stacked: bool
    """Whether each line stands on the one before; then all have the same steps."""
    lines: tuple[Line, ...]


def stack(title: str, unit: str, rows: Rows, layers: Mapping[str, tuple[str, str]]) -> Panel:
    """Metrics that add up to a whole: ``layers`` has label and colour by the metric's name, the
    lowest first. Rows without any of them are left out, as W&B does."""
    used = [row for row in rows if X in row and not layers.keys().isdisjoint(row)]
    lines = [
        Line(label, colour, tuple((row[X], row.get(metric, 0.0)) for row in used))
        for metric, (label, colour) in layers.items()
    ]
    return Panel(title, unit, True, tuple(lines))


def lines(title: str, unit: str, runs: Mapping[str, Rows], colours: Sequence[str]) -> Panel:
    """One metric, ``title``, of several runs."""
    drawn = [
        Line(name, colour, tuple((row[X], row[title]) for row in rows if X in row and title in row))
        for (name, rows), colour in zip(runs.items(), colours, strict=True)
    ]
    return Panel(title, unit, False, tuple(drawn))


def draw(panels: Sequence[Panel], caption: str) -> str:
    """All panels in one SVG."""
    down = -(-len(panels) // _COLUMNS)
    size = f"0 0 {_WIDTH * _COLUMNS} {_HEIGHT * down + 24}"
    svg = ET.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "viewBox": size})
    svg.set("font-family", "system-ui, sans-serif")
    svg.set("font-size", "12")
    ET.SubElement(svg, "title").text = caption
    ET.SubElement(svg, "rect", {"width": "100%", "height": "100%", "fill": "white"})
    for number, panel in enumerate(panels):
        row, column = divmod(number, _COLUMNS)
        frame = ET.SubElement(
            svg, "g", {"transform": f"translate({column * _WIDTH} {row * _HEIGHT})"}
        )
        _draw(frame, panel)
    text(svg, 12, _HEIGHT * down + 12, caption, fill="#52525b")
    return ET.tostring(svg, encoding="unicode") + "\n"


def _draw(frame: ET.Element, panel: Panel) -> None:
    drawn = _cumulated(panel.lines) if panel.stacked else panel.lines
    steps = [x for line in drawn for x, _ in line.points]
    first, last = min(steps), max(steps)
    y_ticks = ticks(max(y for line in drawn for _, y in line.points))
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM

    def x_at(x: float) -> float:
        return _LEFT + (right - _LEFT) * (x - first) / max(last - first, 1)

    def y_at(y: float) -> float:
        return bottom - (bottom - _TOP) * y / y_ticks[-1]

    text(frame, 12, 20, panel.title, weight="600")
    end = _LEFT
    for line in panel.lines:
        label = line.label.removesuffix("_s")  # the title has it
        text(frame, end, 40, label, fill=line.colour, weight="600")
        end += 7 * len(label) + 16
    # From the back to the front: each layer covers the lower part of the one above it.
    for line in reversed(drawn):
        points = " ".join(f"{x_at(x):.1f},{y_at(y):.1f}" for x, y in line.points)
        if panel.stacked:
            edge = f"{x_at(first):.1f},{bottom} {points} {x_at(last):.1f},{bottom}"
            shape = ET.SubElement(frame, "polygon", {"points": edge, "fill": line.colour})
        else:
            style = {"fill": "none", "stroke": line.colour, "stroke-width": "1.5"}
            shape = ET.SubElement(frame, "polyline", {"points": points, **style})
        ET.SubElement(shape, "title").text = line.label
    for tick in y_ticks:
        at = f"{y_at(tick):.1f}"
        grid = {"x1": str(_LEFT), "x2": str(right), "y1": at, "y2": at, "stroke-opacity": "0.15"}
        ET.SubElement(frame, "line", {**grid, "stroke": "black"})
        text(frame, _LEFT - 6, y_at(tick) + 4, f"{tick:g}", anchor="end")
    for step in sorted({round(first + (last - first) * n / (_TICKS - 1)) for n in range(_TICKS)}):
        text(frame, x_at(step), bottom + 16, f"{step:g}", anchor="middle")
    text(frame, right, 20, panel.unit, anchor="end", fill="#52525b")
    text(frame, right, bottom + 32, X, anchor="end", fill="#52525b")


def _cumulated(layers: Sequence[Line]) -> list[Line]:
    """Each layer's upper edge."""
    edges: list[Line] = []
    below = [0.0] * len(layers[0].points)
    for layer in layers:
        below = [base + y for base, (_, y) in zip(below, layer.points, strict=True)]
        steps = [x for x, _ in layer.points]
        edges.append(Line(layer.label, layer.colour, tuple(zip(steps, below, strict=True))))
    return edges
