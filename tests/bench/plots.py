"""Curves as SVG: axes from zero, lines with points, and labels. Nothing else is needed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree as ET

_WIDTH, _HEIGHT = 640, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 56, 48
_MAX_LABELS = 8
"""On the x axis: the longest have ten characters."""
_COLOURS = ("#0b6bcb", "#c2410c", "#15803d", "#7c3aed", "#52525b")


def draw(curve: dict[str, Any]) -> str:
    """The SVG of a `bench.measure.Curve` as JSON."""
    lines = curve["lines"]
    xs = sorted({point[0] for line in lines for point in line["points"]})
    ys = [point[1] for line in lines for point in line["points"]]
    y_ticks = _powers(ys) if curve["logarithmic"] else ticks(max(ys))
    svg = ET.Element(
        "svg",
        {"xmlns": "http://www.w3.org/2000/svg", "viewBox": f"0 0 {_WIDTH} {_HEIGHT}"},
    )
    svg.set("font-family", "system-ui, sans-serif")
    svg.set("font-size", "12")
    ET.SubElement(svg, "title").text = curve["title"]
    ET.SubElement(svg, "rect", {"width": "100%", "height": "100%", "fill": "white"})
    text(svg, 12, 20, curve["title"], weight="600")

    def x_at(x: float) -> float:
        # By rank: the points are powers of two or so, and all of them matter alike.
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (xs.index(x) + 0.5) / len(xs)

    def y_at(y: float) -> float:
        if curve["logarithmic"]:
            low, high = math.log10(y_ticks[0]), math.log10(y_ticks[-1])
            part = (math.log10(y) - low) / (high - low)
        else:
            part = y / y_ticks[-1]
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * part

    for tick in y_ticks:
        at = f"{y_at(tick):.1f}"
        ends = {"x1": str(_LEFT), "x2": str(_WIDTH - _RIGHT), "y1": at, "y2": at}
        ET.SubElement(svg, "line", {**ends, "stroke": "#e4e4e7"})
        text(svg, _LEFT - 6, y_at(tick) + 4, f"{tick:g}", anchor="end")
    for x in xs[:: -(-len(xs) // _MAX_LABELS)]:
        text(svg, x_at(x), _HEIGHT - _BOTTOM + 18, f"{x:,.12g}", anchor="middle")
    text(svg, (_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 8, curve["x"], anchor="middle")
    text(svg, 12, _TOP - 14, curve["y"])
    end = _WIDTH - _RIGHT
    for number, line in reversed(list(enumerate(lines))):
        colour = _COLOURS[number % len(_COLOURS)]
        points = [(x_at(x), y_at(y)) for x, y in line["points"]]
        _line(svg, points, colour)
        if len(lines) > 1:
            text(svg, end, _TOP - 14, line["label"], anchor="end", fill=colour)
            end -= 7 * len(line["label"]) + 16
    return ET.tostring(svg, encoding="unicode") + "\n"


def _line(svg: ET.Element, points: Sequence[tuple[float, float]], colour: str) -> None:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    style = {"fill": "none", "stroke": colour, "stroke-width": "2"}
    ET.SubElement(svg, "polyline", {"points": path, **style})
    for x, y in points:
        ET.SubElement(svg, "circle", {"cx": f"{x:.1f}", "cy": f"{y:.1f}", "r": "3", "fill": colour})


def text(
    svg: ET.Element,
    x: float,
    y: float,
    label: str,
    *,
    anchor: str = "start",
    weight: str = "400",
    fill: str = "#27272a",
) -> None:
    """A line of text that begins, or with ``anchor`` ends or is centred, at a point."""
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": anchor}
    ET.SubElement(svg, "text", {**place, "font-weight": weight, "fill": fill}).text = label


def ticks(most: float) -> list[float]:
    """Ticks from zero to above ``most``, at a round distance."""
    power: float = 10.0 ** math.floor(math.log10(most / 4))
    step = next(power * unit for unit in (1, 2, 2.5, 5, 10) if power * unit * 5 >= most)
    return [step * number for number in range(math.ceil(most / step) + 1)]


def _powers(values: Sequence[float]) -> list[float]:
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return [10.0**power for power in range(low, max(high, low + 1) + 1)]
