"""The documents' pictures show what they say, and each can be made anew by one command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

from pictures import charts
from pictures.panels import Rows, X, draw, lines, stack
from pictures.runs import rows_of_tenants

TESTS = Path(__file__).parent
DOCS = TESTS.parent / "docs"
SVG = "{http://www.w3.org/2000/svg}"
MAX_PICTURE = 60_000
"""Bytes: it is in every clone."""


def shapes(panel: ET.Element) -> dict[str, list[tuple[float, float]]]:
    """The points of each area or line by its label, in the panel's units: its axes say which
    height is which value."""
    heights: list[tuple[float, float]] = []
    steps: list[tuple[float, float]] = []
    for label in panel.iter(f"{SVG}text"):
        where = float(label.attrib["x"]), float(label.attrib["y"])
        if label.attrib["text-anchor"] == "end" and where[0] < 44:
            heights.append((where[1] - 4, float(label.text or "")))
        if label.attrib["text-anchor"] == "middle":
            steps.append((where[0], float(label.text or "")))
    (y0, low), (y1, high) = min(heights), max(heights)
    (x0, first), (x1, last) = min(steps), max(steps)
    found = {}
    for shape in (*panel.iter(f"{SVG}polygon"), *panel.iter(f"{SVG}polyline")):
        points = [tuple(map(float, point.split(","))) for point in shape.attrib["points"].split()]
        found[shape[0].text or ""] = [
            (
                first + (x - x0) * (last - first) / max(x1 - x0, 1),
                low + (y - y0) * (high - low) / (y1 - y0),
            )
            for x, y in points
        ]
    return found


def near(found: list[tuple[float, float]], wanted: list[tuple[float, float]]) -> bool:
    """Within what a picture can show: a pixel, of some hundreds."""
    highest = max(y for _, y in wanted)
    return len(found) == len(wanted) and all(
        abs(x - its_x) <= 0.2 and abs(y - its_y) <= 0.004 * highest
        for (x, y), (its_x, its_y) in zip(found, wanted, strict=True)
    )


def test_layers_stand_on_each_other() -> None:
    """Each layer's upper edge is the sum of it and all below it; rows without any of the metrics
    are left out, and one that a row has not got is nothing there."""
    rows: Rows = [{X: 1, "a": 1.0, "b": 2.0}, {"loss": 1.0}, {X: 2}, {X: 4, "b": 3.0}]
    panel = stack("t", "s", rows, {"a": ("a", "red"), "b": ("b", "blue")})
    (frame,) = ET.fromstring(draw([panel], "caption")).iter(f"{SVG}g")
    found = shapes(frame)
    assert near(found["a"], [(1, 0), (1, 1), (4, 0), (4, 0)])
    assert near(found["b"], [(1, 0), (1, 3), (4, 3), (4, 0)])
    # What is drawn last is in front: the lowest layer covers the foot of those above it.
    assert list(found) == ["b", "a"]


def test_a_line_is_the_metric_of_its_run() -> None:
    """One line for each run, where it has the metric."""
    runs: dict[str, Rows] = {
        "r": [{X: 1, "m": 1.0}, {X: 2}, {X: 3, "m": 2.0}],
        "q": [{X: 1, "m": 0.5}],
    }
    panel = lines("m", "unit", runs, ("red", "blue"))
    (frame,) = ET.fromstring(draw([panel], "caption")).iter(f"{SVG}g")
    assert near(shapes(frame)["r"], [(1, 1), (3, 2)])
    assert near(shapes(frame)["q"], [(1, 0.5)])


def test_the_charts_show_what_real_runs_hold(tmp_path: Path) -> None:
    """Tenants train, log offline, and the picture is drawn from their files: the step's parts
    stack up to its wall at each step, those of the wait to the wait, and there is a line for each
    tenant."""
    for seconds in (2.0, 20.0):  # on a busy machine there may be next to no steps in the first
        runs = rows_of_tenants(seconds, tmp_path)
        if sum("lilo/step.wall_s" in row for row in runs[charts.SHOWN]) > 2:
            break
    charts.write(tmp_path, runs)
    root = ET.parse(tmp_path / "pictures" / "wandb.svg").getroot()
    step, wait, waiting, batch = (shapes(frame) for frame in root.iter(f"{SVG}g"))
    rows = runs[charts.SHOWN]
    walls = [(row[X], row["lilo/step.wall_s"]) for row in rows if "lilo/step.wall_s" in row]
    assert len(walls) > 2
    assert near(step["client_s"][1:-1], walls)
    name = "lilo/forward_backward.queue_wait"
    waits = [(row[X], row[f"{name}.total_s"]) for row in rows if f"{name}.total_s" in row]
    assert near(wait["overhead_s"][1:-1], waits)
    assert set(waiting) == set(batch) == set(runs)
    for tenant in runs:
        key = "lilo/forward_backward.execute.mean_batch"
        assert near(batch[tenant], [(row[X], row[key]) for row in runs[tenant] if key in row])


def test_the_page_says_which_metrics_are_shown() -> None:
    """Whoever makes the panels anew finds every name; the picture is there, and small."""
    page = (DOCS / "CHARTS.md").read_text()
    picture = DOCS / "pictures" / "wandb.svg"
    assert f"({picture.relative_to(DOCS)})" in page
    assert picture.stat().st_size < MAX_PICTURE
    root = ET.parse(picture).getroot()
    step, wait, waiting, batch = (shapes(frame) for frame in root.iter(f"{SVG}g"))
    assert set(step) == {label for label, _ in charts.STEP.values()}
    assert set(wait) == {label for label, _ in charts.WAIT.values()}
    assert all(f"`{name}`" in page for name in (*charts.STEP, *charts.WAIT))
    for panel, name in ((waiting, "step.neighbors_fraction"), (batch, "execute.mean_batch")):
        assert set(panel) == {"heavy", "light", "tiny"}
        assert name in page


def test_a_picture_that_there_is_not_is_refused() -> None:
    """With the names of those that there are."""
    command = [sys.executable, "-m", "pictures", "nothing"]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ended.returncode == 2
    assert "there is no picture 'nothing'; there is charts" in ended.stderr
