"""Two intervals as one."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lilo_timing._answer import Interval, TimingAnswer
from lilo_timing._merge import merge_answers

_Record = tuple[str, float, int]
"""A phase's name, seconds, and commands in the batch."""
_records = st.lists(
    st.tuples(st.sampled_from("abc"), st.floats(0, 100), st.integers(1, 8)), max_size=20
)


def _answer(records: list[_Record]) -> TimingAnswer:
    """What a sidecar would say after these."""
    phases = {}
    ordered = sorted(records)
    for name, group in itertools.groupby(ordered, key=lambda record: record[0]):
        _, seconds, batches = zip(*group, strict=True)
        phases[name] = {
            "count": len(seconds),
            "total_s": sum(seconds),
            "mean_s": sum(seconds) / len(seconds),
            "max_s": max(seconds),
            "mean_batch": sum(batches) / len(batches),
        }
    return TimingAnswer(phases)


@given(st.lists(_records, min_size=1, max_size=5))
def test_merged_phases_are_those_of_all_records_together(intervals: list[list[_Record]]) -> None:
    """However the records are cut into intervals, merging gives what one interval would have."""
    merged = _answer(intervals[0])
    for interval in intervals[1:]:
        merged = merge_answers(merged, _answer(interval))
    whole = _answer(list(itertools.chain(*intervals)))
    assert merged.phases.keys() == whole.phases.keys()
    for name, stats in whole.phases.items():
        assert merged.phases[name] == pytest.approx(stats)


def test_seconds_add_and_moments_span_both() -> None:
    """Waits, shares and the step's parts add up; the step begins with the first interval and
    ends with the last."""
    earlier = TimingAnswer(
        {},
        waits={"k": {"self_s": 1.0}, "only": {"self_s": 5.0}},
        shares={"k": 0.5},
        step={"wall_s": 2.0, "mine_s": 2.0, "since": 10.0, "until": 12.0},
    )
    later = TimingAnswer(
        {},
        waits={"k": {"self_s": 2.0, "overhead_s": 4.0}},
        shares={"k": 0.25, "j": 1.0},
        step={"wall_s": 3.0, "mine_s": 1.0, "client_s": 2.0, "since": 12.0, "until": 15.0},
    )
    merged = merge_answers(earlier, later)
    assert merged.waits == {"k": {"self_s": 3.0, "overhead_s": 4.0}, "only": {"self_s": 5.0}}
    assert merged.shares == {"k": 0.75, "j": 1.0}
    assert merged.step == {
        "wall_s": 5.0,
        "mine_s": 3.0,
        "client_s": 2.0,
        "since": 10.0,
        "until": 15.0,
    }


def test_a_step_of_one_interval_only_stays() -> None:
    """An interval without a step account takes nothing from the other."""
    with_step = TimingAnswer({}, step={"wall_s": 1.0})
    assert merge_answers(with_step, TimingAnswer({})).step == {"wall_s": 1.0}
    assert merge_answers(TimingAnswer({}), with_step).step == {"wall_s": 1.0}


def test_what_counts_from_the_trainers_start_is_the_later_one() -> None:
    """Gauges are no interval's and never add; neither does the delivery of a server that tells no
    interval."""
    earlier = TimingAnswer({}, gauges={"a": 1.0, "b": 1.0}, delivery={"applied": 5})
    later = TimingAnswer({}, gauges={"b": 2.0}, delivery={"applied": 7}, others={"x": {"y": 1}})
    merged = merge_answers(earlier, later)
    assert (merged.gauges, merged.delivery) == ({"a": 1.0, "b": 2.0}, {"applied": 7})
    assert merged.others == {"x": {"y": 1}}


def test_delivery_of_intervals_adds_up() -> None:
    """With the interval from the first one's beginning to the last one's end; complete if both
    are. The journal's state is the latest."""
    earlier = TimingAnswer(
        {}, delivery={"sent": 2, "applied": 2}, interval=Interval("a.1", "a.2", True), journal=True
    )
    later = TimingAnswer(
        {},
        delivery={"sent": 3, "applied": 1, "dropped": 2},
        interval=Interval("a.2", "a.3", False),
        journal=False,
    )
    merged = merge_answers(earlier, later)
    assert merged.delivery == {"sent": 5, "applied": 3, "dropped": 2}
    assert merged.interval == Interval("a.1", "a.3", False)
    assert merged.journal is False
    assert merge_answers(later, earlier).interval == Interval("a.2", "a.2", False)


def test_no_section_is_left_out_of_a_merge() -> None:
    """A section that is only in the earlier answer is not lost."""
    full = TimingAnswer(
        {"p": dict.fromkeys(("count", "total_s", "mean_s", "max_s", "mean_batch"), 1.0)},
        {"k": {"self_s": 1.0}},
        {"k": 1.0},
        {"wall_s": 1.0},
        {"g": 1.0},
        {"applied": 1},
        Interval("a.1", "a.2", True),
        True,
        {"x": {"y": 1}},
    )
    assert len(dataclasses.fields(full)) == 9, "all of them are given here"
    nothing = TimingAnswer({}, interval=Interval("a.2", "a.2", True))
    assert merge_answers(full, nothing) == full
