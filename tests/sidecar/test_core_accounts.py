"""Waits, shares, steps and lanes in single cases that a reader can follow."""

from __future__ import annotations

import pytest

from lilo_engine_hook import wire
from lilo_sidecar.core import lanes
from lilo_sidecar.core.critical_path import CriticalPath
from lilo_sidecar.core.persistence import MAX_SAVERS
from lilo_sidecar.core.timeline import LaneTimeline
from lilo_sidecar.core.timing import LaneNow, WaitTiming
from support.feed import Feed, begin, finish, hello, span


@pytest.fixture
def feed() -> Feed:
    return Feed(CriticalPath(), hello(started=0.0))


def test_wait_is_split_into_self_neighbors_and_overhead(feed: Feed) -> None:
    """Behind one's own backlog 2 s, behind a neighbour 3 s, behind an idle lane 1 s."""
    feed(
        begin("a", 0, 0.0),
        begin("b", 0, 0.0),
        begin("a", 1, 0.0),
        span(["a"], 0.0, 2.0, ids=["a:0"]),
        span(["b"], 2.0, 5.0, ids=["b:0"]),
        span(["a"], 6.0, 7.0, ids=["a:1"]),
    )
    assert feed.timing("a").waits == {"forward_backward": WaitTiming(2.0, 3.0, 1.0, 0.0)}
    assert feed.timing("b").waits == {"forward_backward": WaitTiming(0.0, 2.0, 0.0, 0.0)}
    assert feed.timing().waits == {"forward_backward": WaitTiming(2.0, 5.0, 1.0, 0.0)}


def test_submission_during_own_work_waits_for_its_rest_only(feed: Feed) -> None:
    """Pipelining: a command that comes in while its model's work runs is behind the rest of
    it."""
    feed(
        begin("a", 0, 0.0),
        begin("a", 1, 3.0),
        span(["a"], 0.0, 4.0, ids=["a:0"]),
        span(["a"], 4.0, 5.0, ids=["a:1"]),
    )
    assert feed.timing("a").waits["forward_backward"] == WaitTiming(1.0, 0.0, 0.0, 0.0)


def test_wait_past_the_timelines_reach_is_unattributed(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the timeline has forgotten is said to be unknown, and still in the sum."""
    (only,) = feed.core._producers._trainers.values()
    only._lanes.gpu = LaneTimeline(capacity=4)
    feed(begin("a", 0, 0.0))
    for second in range(8):
        feed(span(["b"], second, second + 0.5))
    feed(span(["a"], 8.0, 9.0, ids=["a:0"]))
    wait = feed.timing("a").waits["forward_backward"]
    assert wait == WaitTiming(0.0, 2.0, 2.5, 3.5)
    assert feed.timing("a").phases["forward_backward.queue_wait"].total_s == 8.0
    step = feed.timing("a").step
    assert step is not None
    assert (step.wall_s, step.neighbors_s, step.overhead_s) == (9.0, 5.5, 2.5)


@pytest.mark.parametrize(
    ("tokens", "weights", "shares"),
    [
        ((300.0, 100.0), (None, None), (3.0, 1.0)),
        (None, (300.0, 100.0), (3.0, 1.0)),
        (None, (None, None), (2.0, 2.0)),
        (None, (3.0, None), (3.0, 1.0)),
        ((0.0, 0.0), (5.0, 1.0), (2.0, 2.0)),
        ((1.0,), (None, None), (2.0, 2.0)),
    ],
)
def test_shares_follow_the_weights(
    feed: Feed,
    tokens: tuple[float, ...] | None,
    weights: tuple[float | None, float | None],
    shares: tuple[float, float],
) -> None:
    """A batch of 4 s is divided by the span's tokens, else the commands' weights, else alike;
    the step account splits it the same way."""
    for model, weight in zip("ab", weights, strict=True):
        feed(begin(model, 0, 0.0)._replace(weight=weight))
    feed(span(["a", "b"], 0.0, 4.0, ids=["a:0", "b:0"])._replace(tokens=tokens))
    for model, share in zip("ab", shares, strict=True):
        answer = feed.timing(model)
        assert answer.shares == {"forward_backward": share}
        assert answer.step is not None
        assert (answer.step.mine_s, answer.step.shared_batch_s) == (share, 4.0 - share)
    assert feed.timing().shares == {"forward_backward": 4.0}


def test_shares_of_unknown_commands_go_by_their_ids(feed: Feed) -> None:
    """A sidecar that missed the submissions still knows whose commands they were."""
    feed(span(["a", "b"], 0.0, 4.0, ids=["a:0", "a:1", "a:2", "b:0"]))
    assert feed.timing("a").shares == {"forward_backward": 3.0}
    feed(span(["a", "b"], 4.0, 8.0))
    assert feed.timing("b").shares == {"forward_backward": 3.0}


def test_only_the_gpu_lane_has_shares(feed: Feed) -> None:
    """Persisting and device time are not the gpu lane's."""
    feed(
        span(["a"], 0.0, 4.0, "persist:save_weights", lane="checkpoint"),
        span(["a"], 0.0, 3.0, "device:forward", lane="device"),
        span(["a"], 0.0, 2.0, "capture:save_weights"),
    )
    assert feed.timing("a").shares == {"save_weights": 2.0}
    assert feed.timing("a").phases["forward.device"].total_s == 3.0


def test_persistence_holds_up_what_it_must_persist_next(feed: Feed) -> None:
    """While the gpu lane is idle and a save waits for the lane that persists saves: that is the
    model's own persistence, or a neighbour's, and no overhead of the scheduler."""
    feed(
        wire.Activity(0.0, "checkpoint", None, None, "save_weights"),
        begin("a", 0, 0.0, "save_weights"),
        begin("b", 0, 0.0, "save_weights"),
        begin("c", 0, 0.0, "optim_step"),
        span(["a"], 0.0, 1.0, "capture:save_weights", ids=["a:0"]),
        begin("a", 1, 1.0, "save_weights"),
        finish("a", 0, 6.0),
        span(["b"], 6.0, 7.0, "capture:save_weights", ids=["b:0"]),
        finish("b", 0, 9.0),
        span(["a"], 9.0, 10.0, "capture:save_weights", ids=["a:1"]),
        span(["c"], 12.0, 13.0, "optim_step", ids=["c:0"]),
    )
    assert feed.timing("b").waits["save_weights"] == WaitTiming(0.0, 6.0, 0.0, 0.0)
    assert feed.timing("a").waits["save_weights"] == WaitTiming(5.0, 3.0, 0.0, 0.0)
    # An optimizer step is not persisted: for it the same time is overhead.
    assert feed.timing("c").waits["optim_step"] == WaitTiming(0.0, 3.0, 9.0, 0.0)
    step = feed.timing("a").step
    assert step is not None
    assert (step.mine_s, step.persist_s, step.neighbors_s, step.overhead_s) == (2.0, 5.0, 3.0, 0.0)


def test_persisting_ends_with_the_finish_not_with_its_late_span(feed: Feed) -> None:
    """From capture to finish the model is persisting; the span of it may come whenever."""
    feed(
        begin("a", 0, 0.0, "save_weights"),
        span(["a"], 0.0, 1.0, "capture:save_weights", ids=["a:0"]),
        finish("a", 0, 4.0),
        begin("a", 1, 6.0),
        span(["a"], 6.0, 7.0, ids=["a:1"]),
        span(["a"], 1.5, 3.9, "persist:save_weights", ids=["a:0"], lane="checkpoint"),
    )
    step = feed.timing("a").step
    assert step is not None
    assert (step.mine_s, step.persist_s, step.client_s) == (2.0, 3.0, 2.0)


def test_result_that_is_not_handed_out_is_overhead(feed: Feed) -> None:
    """Between the end of its execution and its finish a command is still in the trainer."""
    feed(begin("a", 0, 0.0), span(["a"], 0.0, 1.0, ids=["a:0"]), finish("a", 0, 3.0))
    feed(begin("a", 1, 4.0), span(["a"], 4.0, 5.0, ids=["a:1"]))
    step = feed.timing("a").step
    assert step is not None
    assert (step.mine_s, step.overhead_s, step.client_s) == (2.0, 2.0, 1.0)


def test_lost_finish_is_made_up_for_by_the_next(feed: Feed) -> None:
    """Commands of a model run in order: when a later one has finished, an earlier one has, too,
    and does not count as overhead for ever."""
    for seq in range(10):
        t = 10.0 * seq
        feed(begin("a", seq, t), span(["a"], t, t + 1.0, ids=[f"a:{seq}"]))
        if seq != 3:
            feed(finish("a", seq, t + 1.0))
    step = feed.timing("a").step
    assert step is not None
    assert (step.mine_s, step.overhead_s, step.client_s) == (10.0, 9.0, 72.0)


def test_lost_acceptance_does_not_wait_for_ever(feed: Feed) -> None:
    """A model that runs commands has been accepted, whether or not that was heard."""
    feed(wire.Register(0.0, "a"), begin("a", 0, 1.0), span(["a"], 2.0, 3.0, ids=["a:0"]))
    feed(finish("a", 0, 3.0), begin("a", 1, 9.0), span(["a"], 9.0, 10.0, ids=["a:1"]))
    step = feed.timing("a").step
    assert step is not None
    assert (step.mine_s, step.overhead_s, step.client_s) == (2.0, 2.0, 6.0)


def test_command_given_up_on_an_idle_lane_is_settled_when_the_lane_says_so(feed: Feed) -> None:
    """The lane's own word that it is idle is as good as a span of it; so is an empty span."""
    feed(begin("a", 0, 1.0), finish("a", 0, 4.0))
    step = feed.timing("a").step
    assert step is not None
    assert step.until == 1.0
    feed(wire.State(5.0, None, "idle"))
    step = feed.timing("a").step
    assert step is not None
    assert (step.until, step.overhead_s) == (4.0, 3.0)
    feed(begin("b", 0, 5.0), span(["b"], 8.0, 8.0, ids=["b:0"]))
    step = feed.timing("b").step
    assert step is not None
    assert step.wall_s == 3.0


def test_unknown_state_says_nothing_about_the_lane(feed: Feed) -> None:
    """An engine may have states of its own."""
    feed(wire.State(1.0, ("a",), "executing:forward"), wire.State(2.0, ("a",), "queued"))
    assert feed.timing("a").lanes["gpu"].operation == "forward"


def test_late_span_leaves_the_next_operation_running(feed: Feed) -> None:
    """The span of one operation may be heard after the next has begun."""
    feed(wire.State(5.0, ("a",), "executing:optim_step"), span(["a"], 1.0, 4.0))
    assert feed.timing("a").lanes["gpu"].operation == "optim_step"


def test_command_that_runs_on_another_lane_waited_all_the_same(feed: Feed) -> None:
    """What begins on another lane ends its wait; what the gpu lane did meanwhile and was not
    heard of yet is unattributed in the wait, and known to the account later."""
    feed(
        begin("a", 0, 0.0, "load"),
        span(["a"], 6.0, 7.0, "load", ids=["a:0"], lane="checkpoint"),
        finish("a", 0, 7.0),
        span(["b"], 0.0, 8.0),
    )
    assert feed.timing("a").waits["load"] == WaitTiming(0.0, 0.0, 0.0, 6.0)
    step = feed.timing("a").step
    assert step is not None
    assert (step.neighbors_s, step.overhead_s) == (6.0, 1.0)


def test_next_submission_before_the_span_is_heard(feed: Feed) -> None:
    """Work is over, the client has submitted again, and only then its span arrives: the time in
    between was the client's."""
    feed(
        begin("a", 0, 0.0),
        begin("a", 1, 5.0),
        span(["a"], 1.0, 3.0, ids=["a:0"]),
        finish("a", 0, 3.0),
        span(["a"], 6.0, 7.0, ids=["a:1"]),
    )
    step = feed.timing("a").step
    assert step is not None
    assert (step.mine_s, step.wall_s) == (3.0, 7.0)
    assert step.overhead_s + step.client_s == 4.0


def test_models_that_saved_are_bounded(feed: Feed) -> None:
    """A lane remembers the saving of so many models, those that saved last."""
    feed(wire.Activity(0.0, "checkpoint", None, None, "save_weights"))
    for number in range(MAX_SAVERS + 20):
        model, t = f"m{number}", float(number)
        feed(
            begin(model, 0, t, "save_weights"),
            span([model], t, t + 0.25, "capture:save_weights", ids=[f"{model}:0"]),
            finish(model, 0, t + 0.5),
        )
    (only,) = feed.core._producers._trainers.values()
    assert len(only._lanes._persistence["checkpoint"]._own) == MAX_SAVERS


def test_interval_ends_where_the_account_is_settled(feed: Feed) -> None:
    """A reset ends the interval at the model's last event; what is open goes on in the next."""
    feed(begin("a", 0, 1.0), span(["a"], 2.0, 3.0, ids=["a:0"]), begin("a", 1, 3.0))
    first = feed.timing("a", reset=True).step
    assert first is not None
    assert (first.since, first.until, first.wall_s) == (1.0, 3.0, 2.0)
    feed(span(["b"], 3.0, 8.0), span(["a"], 8.0, 9.0, ids=["a:1"]))
    second = feed.timing("a").step
    assert second is not None
    assert (second.since, second.until, second.neighbors_s) == (3.0, 9.0, 5.0)


def test_aggregate_and_strangers_have_no_step(feed: Feed) -> None:
    """A step is one model's."""
    feed(span(["a"], 0.0, 1.0))
    assert feed.timing().step is None
    assert feed.timing("nobody").step is None


def test_lanes_say_what_runs_and_for_how_long(feed: Feed) -> None:
    """A stuck trainer is seen before its span ends: which operation, for how long, and whether
    it is one's own; never whose else."""
    feed(
        wire.State(10.0, ("a", "b"), "executing:forward_backward"),
        wire.Activity(11.0, "checkpoint", "b", "b:0", "save_weights"),
        wire.Activity(11.0, "gpu", "a", "a:0", "forward_backward"),
    )
    answer = feed.core.timing("a", reset=False, now=70.0)
    assert answer.lanes == {
        "gpu": LaneNow("forward_backward", 60.0, True),
        "checkpoint": LaneNow("save_weights", 59.0, False),
    }
    assert feed.core.health(70.0).lanes["gpu"] == LaneNow("forward_backward", 60.0, True)
    feed(span(["a", "b"], 10.0, 71.0), wire.Activity(72.0, "checkpoint", None, None, None))
    assert feed.timing("a").lanes == {}
    feed(wire.State(80.0, ("a",), "executing:forward"), wire.State(81.0, None, "idle"))
    assert feed.timing("a").lanes == {}


def test_lanes_are_bounded(feed: Feed) -> None:
    """Lane names without end are not kept."""
    for lane in range(lanes.MAX_LANES + 20):
        feed(wire.Activity(0.0, f"lane{lane}", "a", "a:0", f"kind{lane}"))
    (only,) = feed.core._producers._trainers.values()
    assert len(list(only.activity)) == lanes.MAX_LANES
    assert len(only._lanes._persistence) == lanes.MAX_LANES


def test_forgotten_model_leaves_nothing_on_the_lanes(feed: Feed) -> None:
    """Models that come, save and go leave no trace in the lanes' records."""
    feed(wire.Activity(0.0, "checkpoint", None, None, "save_weights"))
    for number in range(50):
        model, t = f"m{number}", float(number)
        feed(
            begin(model, 0, t, "save_weights"),
            span([model], t, t + 0.25, "capture:save_weights", ids=[f"{model}:0"]),
            wire.Forget(t + 0.5, model),
        )
    (only,) = feed.core._producers._trainers.values()
    lane = only._lanes._persistence["checkpoint"]
    assert (lane._own, lane._waiting, only._pending) == ({}, {}, {})


def test_parts_add_up_after_rounding(feed: Feed) -> None:
    """In JSON, too: six places each, and the sum is the rounded total."""
    third = 1 / 3
    feed(
        begin("a", 0, 0.0),
        begin("a", 1, 0.1),
        span(["a", "b", "c"], third, 1.1, ids=["a:0", "b:0", "c:0"]),
        span(["b"], 1.1 + third / 3, 2 + third / 7),
        span(["a"], 2 + third / 2, 3 + third / 9, ids=["a:1"]),
    )
    answer = feed.timing("a").to_json()
    step, wait = answer["step"], answer["waits"]["forward_backward"]  # type: ignore[index]
    assert isinstance(step, dict)
    parts = ("mine_s", "shared_batch_s", "neighbors_s", "overhead_s", "persist_s", "client_s")
    assert round(sum(step[part] for part in parts), 9) == step["wall_s"]
    total = answer["phases"]["forward_backward.queue_wait"]["total_s"]  # type: ignore[index]
    assert round(sum(wait.values()), 9) == total
