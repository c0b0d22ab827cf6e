"""What `lilo-sidecar top` makes of an overview."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from lilo_sidecar.asking import AskError, Trouble
from lilo_sidecar.shown import MAX_SHOWN, shown
from lilo_sidecar.top.bars import cells_of
from lilo_sidecar.top.glyphs import ASCII, UNICODE, glyphs_for
from lilo_sidecar.top.overview import WINDOW, Lane, Overview, Work, overview_of
from lilo_sidecar.top.picture import picture
from lilo_sidecar.top.timeline import timeline
from lilo_sidecar.words import count, duration
from support.overviews import NOW, busy_overview, model, overview

URL = "http://127.0.0.1:9411"


def lines_of(
    content: Overview, columns: int = 80, lines: int = 24, trouble: str | None = None
) -> list[str]:
    """The picture in a window of that size."""
    return picture(content, URL, (columns, lines), UNICODE, trouble).plain.split("\n")


# --- others' words ---------------------------------------------------------------------------


@given(st.text(max_size=2 * MAX_SHOWN))
def test_others_words_are_one_printable_line(text: str) -> None:
    """Whatever they are; short ones that are printable stay as they are."""
    line = shown(text)
    assert line.isprintable()
    assert len(line) <= MAX_SHOWN
    if text.isprintable() and len(text) <= MAX_SHOWN:
        assert line == text


def test_numbers_in_words() -> None:
    """With as much as matters."""
    seconds = (0.0, 0.44, 9.94, 9.96, 119.0, 121.0, 7300.0, 180_000.0)
    expected = ["0.0 s", "0.4 s", "9.9 s", "10 s", "119 s", "2 min", "2 h", "2 d"]
    assert list(map(duration, seconds)) == expected
    assert count(1, "event", "events") == "1 event"
    assert count(2000, "event", "events") == "2,000 events"


# --- the overview ----------------------------------------------------------------------------


def test_who_uses_the_lane_most_comes_first() -> None:
    """Of late: what was before the window does not count; then by name."""
    models = [
        model("long-ago", (9.0, 0, 0, 0, 0, 0), until=NOW - WINDOW - 1),
        model("b", (1.0, 0, 0, 0, 0, 0)),
        model("a", (1.0, 0, 0, 0, 0, 0)),
        model("c", (2.0, 0, 0, 0, 0, 0)),
    ]
    ordered = [each.model_id for each in overview_of(overview(*models)).models]
    assert ordered == ["c", "a", "b", "long-ago"]


def test_model_without_an_interval_yet() -> None:
    """Shows what is known of it since it was known."""
    young = {**model("young", (1.0, 0, 0, 0, 0, 3.0)), "intervals": []}
    (found,) = overview_of(overview(young)).models
    assert (found.parts.mine, found.parts.client, found.parts.total) == (1.0, 3.0, 4.0)
    assert (found.since, found.until) == (NOW - 5.0, NOW - 1.0)


def test_model_that_has_run_nothing_has_no_batch_factor() -> None:
    """It is not 0."""
    (found,) = overview_of(overview(model(executions=0, commands=0))).models
    assert found.batch_factor is None


def test_gpu_lane_is_first_and_working_lanes_are_there() -> None:
    """Also one that has finished nothing yet: it is busy since it began."""
    content = overview(
        lanes={"sampler": {"operation": "save", "for_s": 30.0}},
        spans={"checkpoint": [[NOW - 9, NOW - 3, "persist:save", ["m"]]], "gpu": []},
        spans_from={"gpu": NOW - 60, "checkpoint": NOW - 60},
    )
    gpu, checkpoint, sampler = overview_of(content).lanes
    assert [lane.name for lane in (gpu, checkpoint, sampler)] == ["gpu", "checkpoint", "sampler"]
    assert sampler.busy(NOW - 60, NOW) == 0.5
    assert checkpoint.busy(NOW - 60, NOW) == 0.1
    assert (checkpoint.operation, sampler.operation) == (None, "save")


@pytest.mark.parametrize("name", ["models", "lanes", "spans", "delivery", "trainer", "journal"])
def test_answer_that_is_no_overview(name: str) -> None:
    """Is an error of its own kind."""
    content = copy.deepcopy(busy_overview())
    del content[name]
    with pytest.raises(AskError) as caught:
        overview_of(content)
    assert caught.value.trouble is Trouble.FOREIGN


# --- bars and timelines ----------------------------------------------------------------------


@given(st.lists(st.floats(0, 1e9), min_size=6, max_size=6), st.integers(0, 200))
def test_bar_is_as_long_as_it_is_to_be(amounts: list[float], width: int) -> None:
    """And each part is within a cell of its share."""
    cells = cells_of(amounts, width)
    total = sum(amounts)
    assert sum(cells) == (width if total > 0 else 0)
    for cell, amount in zip(cells, amounts, strict=True):
        assert cell >= 0
        if total > 0:
            assert abs(cell - amount / total * width) <= 1


def test_timeline_tells_whose_the_lane_was() -> None:
    """By cell: the model that it worked most for, a capital where it was busy for half of the cell;
    what still runs, what was idle, and what is not known any more."""
    cell = WINDOW / 12
    ago = [NOW - WINDOW + at * cell for at in range(13)]
    work = (
        Work(ago[2], ago[3], "step", ("a",)),
        Work(ago[4], ago[4] + 0.4 * cell, "step", ("b",)),
        Work(ago[5], ago[5] + 0.4 * cell, "step", ("a", "b")),
        Work(ago[5] + 0.4 * cell, ago[5] + 0.7 * cell, "step", ("b",)),
        Work(ago[6], ago[8], "step", ("unlettered",)),
        Work(ago[11], NOW, "step", ()),
    )
    lane = Lane("gpu", "step", cell, ago[1], work)
    found = timeline(lane, NOW, 12, {"a": "a", "b": "b"}, UNICODE)
    assert "".join(character for character, _ in found) == " ·A·bB++···▸"
    assert found[5] == ("B", "b")


def test_timeline_goes_no_further_than_it_is_wide() -> None:
    """Work from before the window, after now, or of no length, is in nobody's way."""
    work = (
        Work(NOW - 9 * WINDOW, NOW - WINDOW + 1, "step", ("a",)),
        Work(NOW - 1, NOW + 99, "step", ("a",)),
        Work(NOW - 50, NOW - 50, "step", ("a",)),
        Work(NOW + 50, NOW + 60, "step", ("a",)),
    )
    lane = Lane("gpu", None, 0.0, NOW - 9 * WINDOW, work)
    found = timeline(lane, NOW, 40, {"a": "a"}, UNICODE)
    assert "".join(character for character, _ in found) == "a" + 38 * "·" + "a"


def test_characters_that_the_terminal_has() -> None:
    """An encoding that lacks one, or that nobody knows, gets those of ASCII."""
    assert glyphs_for("utf-8") is UNICODE
    assert glyphs_for("ascii") is glyphs_for("latin-1") is glyphs_for("no-such") is ASCII
    assert all(len({*each.parts}) == 6 for each in (UNICODE, ASCII))


# --- the picture -----------------------------------------------------------------------------

_SIZES = st.tuples(st.integers(1, 200), st.integers(1, 60))


@given(_SIZES, st.integers(1, 40), st.text(max_size=40), st.booleans())
def test_picture_fits_any_window(
    size: tuple[int, int], models: int, name: str, in_trouble: bool
) -> None:
    """However small it is, however many models there are, and however wide their ids."""
    content = busy_overview(models)
    content["models"][0]["model_id"] = name
    content["lanes"][name] = {"operation": name, "for_s": 1e9}
    trouble = f"No answer: {name}" if in_trouble else None
    lines = lines_of(overview_of(content), *size, trouble)
    assert len(lines) <= size[1]
    assert all(cell_len(line) <= size[0] for line in lines)


def test_more_models_than_fit_are_counted() -> None:
    """With those that the sidecar itself left out."""
    content = overview_of({**busy_overview(40), "models_left_out": 1000})
    lines = lines_of(content)
    shown_models = sum(" model-" in line for line in lines)
    assert len(lines) == 24
    assert shown_models > 8
    assert f"  … and {1040 - shown_models:,} more" in lines
    assert lines[-1].startswith("█ mine")


def test_all_six_parts_in_numbers_where_there_is_room() -> None:
    """In a wide window; the bars have them everywhere."""
    content = overview_of(overview(model("m", (2.0, 1.0, 0.5, 0.5, 0.0, 1.0))))
    (line,) = (line for line in lines_of(content, 140) if "m  " in line and "%" in line)
    assert line.split()[-9:] == ["40%", "20%", "10%", "10%", "0%", "20%", "1.70", "0", "0"]
    (line,) = (line for line in lines_of(content, 80) if "%" in line)
    assert line.split()[-4:] == ["40%", "1.70", "0", "0"]
    bar = line.split()[2]
    assert [bar.count(character) for character in "█▓▒x░·"] == cells_of(
        (4, 2, 1, 1, 0, 2), len(bar)
    )


@pytest.mark.parametrize(
    ("sections", "says"),
    [
        ({"trainer": {"connected": False, "last_heard_age_s": None}}, "no trainer has connected"),
        ({"trainer": {"connected": False, "last_heard_age_s": 300.0}}, "gone, heard 5 min ago"),
        ({"journal": {"writing": False, "reason": "No space"}}, "journal OFF: No space"),
        ({"faults": 2}, "2 faults; lilo-sidecar check says more"),
        ({}, "The trainer has no models yet."),
        ({}, "No lane has worked in the last minutes."),
        ({}, "1,200 applied, none lost"),
        (
            {"lanes": {f"l{n}": {"operation": "x", "for_s": 1} for n in range(6)}},
            "and 2 more lanes",
        ),
    ],
)
def test_state_is_told(sections: dict[str, object], says: str) -> None:
    """Whether what is shown can be relied upon."""
    assert says in "\n".join(lines_of(overview_of(overview(**sections))))


@pytest.mark.parametrize("name", ["dropped", "rejected", "missed", "unweighed", "series_refused"])
def test_losses_are_told(name: str) -> None:
    """By name, with how many."""
    counts = {**overview()["delivery"], name: 3}
    text = "\n".join(lines_of(overview_of(overview(delivery=counts)), 120))
    assert f"3 {name.replace('_', ' ')}; lilo-sidecar check says more" in text
    assert "none lost" not in text
