"""The models' time in the last minutes, in intervals."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from lilo_sidecar.core import history
from lilo_sidecar.core.account import StepSums
from lilo_sidecar.core.critical_path import CriticalPath
from lilo_sidecar.core.history import KEPT_FOR, MAX_INTERVALS, MAX_MODELS_SHOWN, History, latest
from lilo_sidecar.core.totals import ModelTotals
from support.feed import Feed
from support.schedule import events, random_schedule

LONG_AGO = -1e6


def totals(
    model: str, until: float, *sums: float, since: float = LONG_AGO, client: float = 0.0
) -> ModelTotals:
    """A model whose account says this."""
    parts = (*sums, *(0.0,) * (5 - len(sums)), client)
    return ModelTotals(model, since, until, StepSums(*parts), 0, 0, 0, 0)


def test_an_interval_is_what_the_totals_came_to() -> None:
    """Between two looks: until when, and the six parts, which add up to its length. Of a model
    that was known for long there is nothing to tell before the second look."""
    kept = History()
    kept.sample([totals("m", 100.0, 10.0, client=5.0)], 100.0)
    assert kept.intervals("m") == []
    kept.sample([totals("m", 104.5, 12.0, 1.5, client=6.0)], 105.0)
    kept.sample([totals("m", 109.0, 16.5, 1.5, client=6.0)], 110.0)
    assert kept.intervals("m") == [
        [104.5, 2.0, 1.5, 0.0, 0.0, 0.0, 1.0],
        [109.0, 4.5, 0.0, 0.0, 0.0, 0.0, 0.0],
    ]
    assert kept.intervals("nobody") == []


def test_a_part_that_falls_is_taken_back_later() -> None:
    """What came late told of another part. No interval has a part below zero, each adds up to its
    length, and all together come to the totals again."""
    kept = History()
    kept.sample([totals("m", 100.0)], 100.0)
    kept.sample([totals("m", 110.0, 0.0, 0.0, 0.0, 10.0)], 105.0)
    kept.sample([totals("m", 114.0, 9.0, 0.0, 0.0, 5.0)], 110.0)
    kept.sample([totals("m", 124.0, 19.0, 0.0, 0.0, 5.0)], 115.0)
    kept.sample([totals("m", 134.0, 19.0, 0.0, 0.0, 15.0)], 120.0)
    rows = kept.intervals("m")
    assert [sum(row[1:]) for row in rows] == [10.0, 4.0, 10.0, 10.0]
    assert min(part for row in rows for part in row[1:]) == 0.0
    assert [sum(column) for column in zip(*(row[1:] for row in rows), strict=True)] == [
        *(19.0, 0.0, 0.0),
        *(15.0, 0.0, 0.0),
    ]


def test_a_model_that_has_not_moved_gets_no_interval() -> None:
    """The next one is as long as it really was."""
    kept = History()
    kept.sample([totals("m", 100.0)], 100.0)
    for now in (105.0, 110.0, 115.0):
        kept.sample([totals("m", 100.0)], now)
    kept.sample([totals("m", 118.0, 0.0, 0.0, 18.0)], 120.0)
    assert kept.intervals("m") == [[118.0, 0.0, 0.0, 18.0, 0.0, 0.0, 0.0]]


def test_a_new_model_begins_when_it_was_first_heard_of() -> None:
    """All that is known of it is of the last minutes; it is not left out until the next look."""
    kept = History()
    kept.sample([], 100.0)
    kept.sample([totals("m", 103.0, 2.0, client=1.0, since=100.0)], 105.0)
    assert kept.intervals("m") == [[103.0, 2.0, 0.0, 0.0, 0.0, 0.0, 1.0]]


def test_another_model_of_the_same_id_begins_anew() -> None:
    """A replaced trainer's figures are not the difference to its successor's."""
    kept = History()
    kept.sample([totals("m", 103.0, 3.0, since=100.0)], 105.0)
    kept.sample([totals("m", 109.0, 1.0, since=108.0)], 110.0)
    assert kept.intervals("m") == [[109.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]]
    kept.sample([], 115.0)
    assert kept.intervals("m") == []


def test_what_is_too_old_goes() -> None:
    """Ten minutes are kept."""
    kept = History()
    for now in range(0, 1000, 5):
        kept.sample([totals("m", float(now), client=float(now))], float(now))
    untils = [until for until, *_ in kept.intervals("m")]
    assert untils == [float(t) for t in range(995 - int(KEPT_FOR), 1000, 5)]


def test_a_clock_that_was_set_back_begins_anew() -> None:
    """Intervals in two orders would be neither."""
    kept = History()
    kept.sample([totals("m", 100.0)], 100.0)
    kept.sample([totals("m", 105.0, 5.0)], 105.0)
    kept.sample([totals("m", 106.0, 6.0)], 50.0)
    assert kept.intervals("m") == []


@pytest.mark.parametrize("seed", range(10))
def test_intervals_add_up(seed: int) -> None:
    """Of random schedules, looked at at random times: each interval's parts are its length, each
    begins where the one before ended, and all together are what the model's totals say."""
    random = Random(seed)
    core = CriticalPath()
    feed = Feed(core)
    kept = History()
    now = 0.0
    for event in events(random_schedule(random, 40), random):
        feed(event)
        if random.random() < 0.2:
            now += 1.0
            kept.sample(core.totals(ahead=True).models, now)
    kept.sample(core.totals(ahead=True).models, now + 1.0)
    for model in core.totals(ahead=True).models:
        rows = kept.intervals(model.model_id)
        ends = [model.since, *(until for until, *_ in rows)]
        for (start, end), (_, *parts) in zip(pairwise(ends), rows, strict=True):
            assert sum(parts) == pytest.approx(end - start, abs=1e-9)
            assert all(part >= 0.0 for part in parts)
        assert ends[-1] == model.until
        sums = [sum(column) for column in zip(*(row[1:] for row in rows), strict=True)]
        assert sums == pytest.approx(model.sums.to_tuple(), abs=1e-3)


def test_the_models_that_moved_last_are_kept() -> None:
    """No more of them than are shown, by their ids; which they are may change."""
    models = [totals(f"m{at:04}", float(at)) for at in range(MAX_MODELS_SHOWN + 1)]
    shown = [model.model_id for model in latest(models)]
    assert shown == [f"m{at:04}" for at in range(1, MAX_MODELS_SHOWN + 1)]
    kept = History()
    kept.sample(models, 500.0)
    models[0] = totals("m0000", 501.0, client=501.0)
    kept.sample(models, 505.0)
    models[0] = totals("m0000", 502.0, client=502.0)
    kept.sample(models, 510.0)
    assert [until for until, *_ in kept.intervals("m0000")] == [502.0]


def test_no_more_intervals_are_given_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several are given as one then, which is as long as they were together."""
    kept = History()
    for now in range(0, 600, 5):
        models = [
            totals(f"m{at}", float(now), float(now) / 5, client=float(now) * 4 / 5)
            for at in range(40)
        ]
        kept.sample(models, float(now))
    together = kept.together()
    assert together == 2
    assert sum(len(kept.intervals(f"m{at}", together)) for at in range(40)) <= MAX_INTERVALS
    rows = kept.intervals("m0", together)
    assert rows[0] == [10.0, 2.0, 0.0, 0.0, 0.0, 0.0, 8.0]
    assert rows[-1] == [595.0, 1.0, 0.0, 0.0, 0.0, 0.0, 4.0]  # the odd one
    monkeypatch.setattr(history, "MAX_INTERVALS", 40)
    assert [len(kept.intervals(f"m{at}", kept.together())) for at in range(40)] == [1] * 40


def test_only_what_is_new_is_given_to_whoever_has_the_rest() -> None:
    """By when it was taken, which is later than when it happened."""
    kept = History()
    for now in (0.0, 5.0, 10.0, 15.0):
        kept.sample([totals("m", now - 3.0, client=now)], now)
    untils = [until for until, *_ in kept.intervals("m", after=5.0, until=10.0)]
    assert untils == [7.0]
    assert kept.intervals("m", after=15.0) == []
