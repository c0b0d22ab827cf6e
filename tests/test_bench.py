"""The benchmark runs, and finds every figure. What it finds is judged by people: no test of time
holds on a busy machine."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from bench.measure import Bound, Figure, Ratio, Spread, compared, interleaved, percentile
from bench.plots import draw
from bench.report import publish

TESTS = Path(__file__).parent
FIGURES = (
    "trainer thread, one command",
    "trainer process, one command",
    "trainer thread, one span",
    "torch trainer, one step with the hook",
    "sidecar ingest, 1 model",
    "sidecar ingest, 256 models of 20 phases",
    "GET for one model, idle, p50",
    "GET for one model while 50,000 events/s are sent, p99",
    "resident memory, full",
    "resident memory after",
    "log_critical_path on the caller's thread, p99",
    "import lilo_engine_hook",
    "import lilo_timing",
    "modules of httpx loaded by import lilo_timing",
)
CURVES = (
    "trainer-pace",
    "answer-load",
    "sidecar-load",
    "memory-models",
    "ingest-models",
    "ingest-phases",
    "ingest-producers",
    "answer-readers",
)


def test_quick_run_has_every_figure_and_curve(tmp_path: Path) -> None:
    """Every figure is there with its spread, what it is compared with and what it is to reach;
    every curve can be drawn, and the page takes all of it."""
    out = tmp_path / "bench.json"
    subprocess.run(
        [sys.executable, "-m", "bench", "--quick", "--out", str(out)],
        check=True,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
    )
    result = json.loads(out.read_text())
    assert result["quick"] is True
    for wanted in FIGURES:
        (figure,) = [f for f in result["figures"] if f["bounds"] and _is(f["name"], wanted)]
        assert 0 <= figure["ours"]["lower"] <= figure["ours"]["median"] <= figure["ours"]["upper"]
        assert figure["reached"] in (True, False)
        if figure["ratio"] is not None:
            assert figure["comparison"]
            assert (
                0 < figure["ratio"]["low"] <= figure["ratio"]["median"] <= figure["ratio"]["high"]
            )
    assert sorted(curve["name"] for curve in result["curves"]) == sorted(CURVES)
    (tmp_path / "PERFORMANCE.md").write_text(
        "before\n<!-- written by make bench -->\nthe last run's\n<!-- until here -->\nafter\n"
    )
    publish(result, tmp_path)
    page = (tmp_path / "PERFORMANCE.md").read_text()
    assert page.startswith("before\n")
    assert page.endswith("after\n")
    assert "the last run's" not in page
    assert all(figure["name"] in page for figure in result["figures"])
    for curve in CURVES:
        ET.parse(tmp_path / "performance" / f"{curve}.svg")


def _is(name: str, wanted: str) -> bool:
    return name == wanted or (wanted.startswith("resident") and name.startswith(wanted))


def test_rounds_are_interleaved_in_turns() -> None:
    """Each contestant once a round, first and last in turns; the warm-up does not count."""
    order: list[str] = []

    def contestant(name: str) -> float:
        order.append(name)
        return float(len(order))

    found = interleaved(2, {"a": lambda: contestant("a"), "b": lambda: contestant("b")})
    assert "".join(order) == "abbaab"
    assert found == {"a": [4.0, 5.0], "b": [3.0, 6.0]}


def test_ratio_is_of_pairs_and_in_its_interval() -> None:
    """What slows a whole round down does not show in the ratio; the interval is narrow where the
    pairs agree and holds the median where they do not."""
    theirs = [1.0, 7.0, 2.0, 30.0]
    assert Ratio.of([2 * each for each in theirs], theirs) == (2.0, 2.0, 2.0)
    low, median, high = Ratio.of([1.0, 2.0, 3.0, 4.0, 5.0], [1.0] * 5)
    assert low < median == 3.0 < high


@pytest.mark.parametrize(
    ("bound", "reached"),
    [
        (Bound("ratio", "at most", 0.5), True),
        (Bound("ratio", "at most", 0.49), False),
        (Bound("ratio", "at least", 0.5), True),
        (Bound("ratio", "at least", 0.51), False),
        (Bound("value", "at most", 2), True),
        (Bound("value", "at most", 1.9), False),
        (Bound("difference", "at most", -2), True),
        (Bound("difference", "at most", -2.1), False),
        (Bound("ratio", "equal within", 0.001), False),
    ],
)
def test_bounds_are_judged(bound: Bound, reached: bool) -> None:
    """Against the ratio, the value, or the difference to the comparison."""
    assert compared("f", "ms", [2.0, 2.0], "c", [4.0, 4.0], bound).reached is reached


def test_equality_wants_one_in_the_interval_and_the_median_near() -> None:
    """A wide interval around one is not enough, nor is a narrow one beside it."""
    bound = Bound("ratio", "equal within", 0.001)

    def reached(low: float, median: float, high: float) -> bool | None:
        ratio = Ratio(low, median, high)
        return Figure("f", "ms", Spread(1, 1, 1), ratio=ratio, bounds=(bound,)).reached

    assert reached(0.999, 1.0005, 1.001)
    assert not reached(0.9, 1.01, 1.1)
    assert not reached(1.0001, 1.0005, 1.001)


def test_percentiles_are_samples() -> None:
    """The middle, and the worst of a hundred."""
    samples = list(map(float, range(100)))
    assert percentile(samples, 50) == 50.0
    assert percentile(samples, 99) == 99.0
    assert percentile([3.0], 99) == 3.0


def test_plots_stay_within_their_frame() -> None:
    """Every point is inside, on a linear axis and on a logarithmic one."""
    points = [(1.0, 0.3), (256.0, 47.0)]
    for logarithmic in (False, True):
        svg = ET.fromstring(
            draw(
                {
                    "title": "t",
                    "x": "x",
                    "y": "y",
                    "logarithmic": logarithmic,
                    "lines": [{"label": "l", "points": points}],
                }
            )
        )
        circles = [each for each in svg if each.tag.endswith("circle")]
        assert len(circles) == len(points)
        for circle in circles:
            assert 0 < float(circle.attrib["cx"]) < 640
            assert 0 < float(circle.attrib["cy"]) < 320
            assert math.isfinite(float(circle.attrib["cy"]))
