"""The spans that were heard last."""

from __future__ import annotations

import pytest

from lilo_engine_hook import wire
from lilo_sidecar.core import recent_spans
from lilo_sidecar.core.critical_path import CriticalPath
from lilo_sidecar.core.recent_spans import MAX_SPANS, MAX_TEXT, RecentSpans
from lilo_sidecar.state.recorder import Recorder
from support.feed import begin, hello, span

ALL = float("-inf")


def starts(spans: RecentSpans, earliest: float = ALL, heard_after: float = ALL) -> list[float]:
    """When the spans that are given began."""
    return [found.t0 for found in spans.since(earliest, heard_after)]


def test_spans_are_given_in_the_order_they_began() -> None:
    """Whatever lane they are of, and in whatever order they were heard; other events are passed
    over, and so is a span that ends before it begins."""
    spans = RecentSpans(0.0)
    late = span(["m"], 1, 9, "persist:save_weights", lane="checkpoint")
    spans.add([span(["m", "n"], 2, 3), begin("m", 1, 3.0), span(["m"], 5, 4), late], 9.0)
    first, second = spans.since(ALL, ALL)
    assert (first.lane, first.t0, first.t1, first.name) == (
        "checkpoint",
        1,
        9,
        "persist:save_weights",
    )
    assert (second.lane, second.models) == ("gpu", ("m", "n"))


def test_only_what_is_new_is_given_to_whoever_has_the_rest() -> None:
    """New is what was heard later, however long ago it was."""
    spans = RecentSpans(0.0)
    spans.add([span(["m"], 10, 11)], 11.0)
    spans.add([span(["m"], 5, 6), span(["m"], 12, 13)], 13.0)
    assert starts(spans) == [5, 10, 12]
    assert starts(spans, heard_after=11.0) == [5, 12]
    assert starts(spans, heard_after=13.0) == []
    assert starts(spans, earliest=6.0) == [10, 12]


def test_no_more_spans_are_kept_than_may_be() -> None:
    """The one that was heard first goes, and the record says how far back it reaches."""
    spans = RecentSpans(0.5)
    spans.add([span(["m"], t, t + 1) for t in range(MAX_SPANS)], 1.0)
    assert spans.known_from() == 0.5
    assert len(starts(spans)) == MAX_SPANS
    spans.add([span(["m"], MAX_SPANS, MAX_SPANS + 1)], 2.0)
    assert len(starts(spans)) == MAX_SPANS
    assert starts(spans)[0] == 1
    assert spans.known_from() == 1  # the one that went ended then


def test_spans_of_many_models_take_no_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their ids are bounded together: spans with many or long ones are fewer."""
    models = [f"{at:0{wire.MAX_MODEL_ID}}" for at in range(64)]
    one = span(models, 0, 1)
    fit = MAX_TEXT // (64 * wire.MAX_MODEL_ID)
    spans = RecentSpans(0.0)
    spans.add([one] * fit, 1.0)
    assert (len(starts(spans)), spans.known_from()) == (fit, 0.0)
    spans.add([one], 1.0)
    assert (len(starts(spans)), spans.known_from()) == (fit, 1.0)
    monkeypatch.setattr(recent_spans, "MAX_TEXT", 0)
    spans.add([span(["m"], 7, 8)], 1.0)
    assert (starts(spans), spans.known_from()) == ([], 8.0)


def test_a_batch_that_is_sent_again_is_seen_once() -> None:
    """What was acknowledged and comes again is no work of the lane's; what is behind it is."""
    recorder = Recorder(CriticalPath(), None, lambda: 1.0)
    recorder.connect(hello(), b"")
    events = tuple(span(["m"], t, t + 1) for t in range(3))
    recorder.apply("boot", wire.Batch(1, 0, 0, events[:2]), b"")
    recorder.apply("boot", wire.Batch(1, 0, 0, events), b"")
    assert starts(recorder.spans) == [0, 1, 2]
    recorder.apply("boot", wire.Batch(9, 0, 0, (span(["m"], 8, 9),)), b"")  # behind a gap
    assert starts(recorder.spans) == [0, 1, 2, 8]
