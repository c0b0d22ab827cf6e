"""Overviews that no sidecar gives: `lilo-sidecar top` refuses them, or draws no more than it is
able to."""

from __future__ import annotations

from typing import Any

import pytest

from lilo_sidecar.asking import AskError, Trouble
from lilo_sidecar.core.history import MAX_MODELS_SHOWN
from lilo_sidecar.core.lanes import MAX_LANES
from lilo_sidecar.core.recent_spans import MAX_SPANS
from lilo_sidecar.top.glyphs import UNICODE
from lilo_sidecar.top.overview import overview_of
from lilo_sidecar.top.picture import picture
from support.overviews import NOW, busy_overview, model, overview

SIZES = [(80, 24), (300, 60)]
"""Columns and lines; in the wider one a cell of a lane has less than a second."""
LARGEST_COUNT = 10**40 - 1
"""More digits are refused where the answer is read."""


def altered(place: tuple[str | int, ...], value: object) -> dict[str, Any]:
    """An overview with that in its place."""
    content = busy_overview()
    content["models"].append({**model("young"), "intervals": []})
    *way, last = place
    part: Any = content
    for step in way:
        part = part[step]
    assert part[last] is not None
    part[last] = value
    return content


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", 1.7e308, -1.7e308, 1e19])
@pytest.mark.parametrize(
    "place",
    [
        ("now",),
        ("uptime_s",),
        ("trainer", "last_heard_age_s"),
        ("lanes", "gpu", "for_s"),
        ("spans_from", "gpu"),
        ("spans", "gpu", 0, 0),
        ("spans", "gpu", 0, 1),
        ("models", 0, "intervals", 0, 0),
        ("models", 0, "intervals", 0, 1),
        ("models", -1, "until"),
        ("models", -1, "step", "mine_s"),
    ],
    ids=lambda place: ".".join(map(str, place)),
)
def test_time_beyond_all_times_is_no_sidecars(place: tuple[str | int, ...], value: object) -> None:
    """Also one that JSON has only as text. Nothing could be drawn to such a scale."""
    with pytest.raises(AskError) as caught:
        overview_of(altered(place, value))
    assert caught.value.trouble is Trouble.FOREIGN


@pytest.mark.parametrize("value", [1e18, -1e18])
def test_times_far_beyond_a_sidecars_are_drawn(value: float) -> None:
    """All of them at once, and each beside ordinary ones: what comes of it fits the window."""
    far = overview(
        model("m", [value] * 6, until=value),
        now=value,
        uptime_s=value,
        lanes={"gpu": {"operation": "step", "for_s": value}},
        spans={"gpu": [[-value, value, "step", ["m"]], [value, -value, "step", ["m"]]]},
        spans_from={"gpu": value},
    )
    for content in (far, {**far, "now": NOW}, {**busy_overview(), "now": value}):
        for columns, lines in SIZES:
            drawn = picture(overview_of(content), "", (columns, lines), UNICODE).plain.split("\n")
            assert len(drawn) <= lines
            assert all(len(line) <= columns for line in drawn)


@pytest.mark.parametrize(
    "place",
    [
        ("faults",),
        ("models_left_out",),
        ("delivery", "dropped"),
        ("models", 0, "queued"),
        ("models", 0, "commands"),
    ],
    ids=lambda place: ".".join(map(str, place)),
)
def test_counts_of_many_digits_fit_the_window(place: tuple[str | int, ...]) -> None:
    """What has no room is cut off."""
    content = overview_of(altered(place, LARGEST_COUNT))
    for columns, lines in SIZES:
        drawn = picture(content, "", (columns, lines), UNICODE).plain.split("\n")
        assert all(len(line) <= columns for line in drawn)


def test_models_are_taken_up_to_those_that_a_sidecar_shows() -> None:
    """The first ones of them; no sidecar names more."""
    named = [model(f"m-{number}") for number in range(MAX_MODELS_SHOWN + 1)]
    taken = {each.model_id for each in overview_of(overview(*named)).models}
    assert taken == {each["model_id"] for each in named[:MAX_MODELS_SHOWN]}


def test_lanes_are_taken_up_to_those_that_a_sidecar_has() -> None:
    """One that works now goes before what others did."""
    content = overview(
        lanes={"z": {"operation": "save", "for_s": 1.0}},
        spans={f"lane-{number}": [] for number in range(MAX_LANES)},
    )
    lanes = overview_of(content).lanes
    assert len(lanes) == MAX_LANES
    assert [lane.name for lane in lanes if lane.operation] == ["z"]


def test_spans_of_a_lane_are_taken_up_to_those_that_a_sidecar_keeps() -> None:
    """The latest."""
    spans = [[NOW - 60 + at / 1e6, NOW, "step", ["m"]] for at in range(MAX_SPANS + 1)]
    (lane,) = overview_of(overview(spans={"gpu": spans})).lanes
    assert [work.start for work in lane.work] == [span[0] for span in spans[1:]]
