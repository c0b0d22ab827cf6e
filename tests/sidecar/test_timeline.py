"""The lane's timeline: windows, late spans, and its bound."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lilo_sidecar.core import timeline
from lilo_sidecar.core.timeline import MAX_SPANS, LaneTimeline

_quarters = st.integers(0, 200).map(lambda quarter: quarter / 4)


@given(st.lists(st.tuples(_quarters, _quarters), max_size=30), _quarters, _quarters)
def test_windows_are_those_of_the_spans(
    cuts: list[tuple[float, float]], start: float, end: float
) -> None:
    """Spans in order, with and without gaps: the busy time of any window."""
    lane = LaneTimeline()
    spans, t = [], 0.0
    for gap, length in cuts:
        spans.append((t + gap, t + gap + length))
        t += gap + length
        lane.add(*spans[-1])
    expected = sum(max(0.0, min(e, end) - max(s, start)) for s, e in spans)
    assert lane.busy(start, end) == expected
    assert lane.known_until == max((e for _, e in spans), default=float("-inf"))


@given(st.lists(st.integers(0, 40), min_size=1, max_size=40, unique=True))
def test_late_spans_find_their_place(slots: list[int]) -> None:
    """Spans that come out of order, as threads may race: the same sums as in order."""
    lane = LaneTimeline()
    for slot in slots:
        lane.add(slot, slot + 0.5)
    for window in (5, 20, 41):
        assert lane.busy(0, window) == sum(0.5 for slot in slots if slot < window)


def test_overlap_counts_once() -> None:
    """Spans of a serialized lane do not overlap; where a clock was set back, time is not
    counted twice."""
    lane = LaneTimeline()
    lane.add(0.0, 10.0)
    lane.add(5.0, 12.0)
    lane.add(2.0, 4.0)
    lane.add(12.0, 12.0)
    assert lane.busy(0.0, 20.0) == 12.0
    lane.add(15.0, 16.0)
    lane.add(11.0, 15.5)
    assert lane.busy(0.0, 20.0) == 16.0


def test_old_spans_go_and_the_timeline_says_so() -> None:
    """Beyond its capacity the oldest go; windows behind are only partly known."""
    lane = LaneTimeline(capacity=10)
    for second in range(20):
        lane.add(second, second + 0.5)
    assert lane.known_from == 8.5
    assert lane.busy(10.0, 20.0) == 5.0
    assert lane.busy(0.0, 20.0) == 5.5
    lane.add(3.0, 4.0)
    assert lane.busy(0.0, 20.0) == 5.5, "what comes that late changes no window any more"


def test_span_later_than_the_limit_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A late span may move a bounded number of others, so that none costs much."""
    monkeypatch.setattr(timeline, "_MAX_SHIFT", 3)
    lane = LaneTimeline()
    for second in (0, 10, 20, 30, 40):
        lane.add(second, second + 1)
    lane.add(5.0, 6.0)
    assert lane.busy(0.0, 50.0) == 5.0
    lane.add(25.0, 26.0)
    assert lane.busy(0.0, 50.0) == 6.0


def test_bound_is_the_documented_one() -> None:
    """The contract's figure."""
    assert MAX_SPANS == 65_536
