"""Every bound of the core: what it turns away is counted, and nothing grows past it."""

from __future__ import annotations

import pytest

from lilo_engine_hook import wire
from lilo_sidecar.core import producers, trainer
from lilo_sidecar.core.account import MAX_PIECES
from lilo_sidecar.core.critical_path import CriticalPath
from lilo_sidecar.core.models import MAX_FORGOTTEN, MAX_MODELS
from lilo_sidecar.core.producers import MAX_BOOTS, MAX_SERIES
from lilo_sidecar.core.records import MAX_AGGREGATE
from lilo_sidecar.core.trainer import MAX_PENDING
from support.feed import Feed, begin, finish, hello, span


@pytest.fixture
def feed() -> Feed:
    return Feed(CriticalPath())


def series(feed: Feed, models: int) -> int:
    """How many per-model series there are."""
    return sum(len(feed.timing(f"m{i}").phases) for i in range(models))


def test_series_are_bounded_and_the_aggregate_is_exempt(feed: Feed) -> None:
    """At MAX_SERIES new series are refused and counted; the aggregate records every one."""
    models = MAX_SERIES // 32 + 4
    for model in range(models):
        feed(*(span([f"m{model}"], 0, 1, f"k{kind}") for kind in range(32)))
    assert series(feed, models) == MAX_SERIES
    aggregate = feed.timing()
    assert sum(phase.count for phase in aggregate.phases.values()) == models * 32
    assert aggregate.delivery.series_refused == 4 * 32
    feed(span(["m0"], 0, 1, "k0"))
    assert feed.timing("m0").phases["k0.execute"].count == 2, "a series that exists goes on"


def test_forgetting_a_model_makes_room(feed: Feed) -> None:
    """`forget_model` gives the room of a model's series to others, though its last interval can
    still be read; a reset does not, since there may be other readers."""
    for model in range(MAX_SERIES // 32):
        feed(*(span([f"m{model}"], 0, 1, f"k{kind}") for kind in range(32)))
    feed(span(["late"], 0, 1))
    assert feed.timing("late").phases == {}
    feed.timing("m1", reset=True)
    feed(span(["late"], 0, 1))
    assert feed.timing("late").phases == {}
    feed(wire.Forget(0, "m0"))
    feed(*(span(["late"], 0, 1, f"k{kind}") for kind in range(33)))
    assert len(feed.timing("late").phases) == 32
    assert feed.timing().delivery.series_refused == 3
    assert len(feed.timing("m0").phases) == 32


def test_late_span_does_not_bring_a_forgotten_model_back(feed: Feed) -> None:
    """A span or submission after `forget_model` counts for the aggregate only; registering the
    model again makes it new."""
    feed(
        wire.Register(0, "m"),
        wire.Forget(1, "m"),
        span(["m", "n"], 0, 3),
        begin("m", 0, 1.0),
        span(["m"], 4, 5, ids=["m:0"]),
    )
    assert feed.timing("m").phases == {}
    assert feed.timing("n").phases["forward_backward.execute"].total_s == 3.0
    assert feed.timing().phases["forward_backward.execute"].total_s == 4.0
    feed(wire.Register(6, "m"), span(["m"], 7, 8))
    assert feed.timing("m").phases["forward_backward.execute"].count == 1


def test_forgotten_ids_are_bounded(feed: Feed) -> None:
    """A stream of models that come and go leaves a bounded memory of them, the latest ones."""
    for model in range(MAX_FORGOTTEN + 10):
        feed(wire.Register(0, f"m{model}"), wire.Forget(0, f"m{model}"))
    feed(span(["m9", f"m{MAX_FORGOTTEN}"], 0, 1))
    assert "forward_backward.execute" in feed.timing("m9").phases
    assert feed.timing(f"m{MAX_FORGOTTEN}").phases == {}
    (only,) = feed.core._producers._trainers.values()
    assert len(only.models._forgotten) == MAX_FORGOTTEN
    assert len(only.models.known) == 1


def test_models_are_bounded(feed: Feed) -> None:
    """100,000 model ids keep MAX_MODELS of them; the rest is refused and counted."""
    for start in range(0, 100_000, 1000):
        feed(*(wire.Register(0, f"m{start + i}") for i in range(1000)))
    (only,) = feed.core._producers._trainers.values()
    assert len(only.models.known) == MAX_MODELS
    assert feed.timing().delivery.series_refused == 100_000 - MAX_MODELS


def test_pending_commands_are_bounded_oldest_first_out(feed: Feed) -> None:
    """Commands nobody finishes do not accumulate, and do not keep new ones out."""
    for seq in range(MAX_PENDING + 3):
        feed(begin("m", seq, 0.0))
    assert feed.timing().delivery.pending_evicted == 3
    feed(span(["m"], 5, 6, ids=["m:2"]))
    assert "forward_backward.queue_wait" not in feed.timing("m").phases
    feed(span(["m"], 5, 6, ids=["m:3", f"m:{MAX_PENDING + 2}"]))
    assert feed.timing("m").phases["forward_backward.queue_wait"].count == 2
    (only,) = feed.core._producers._trainers.values()
    assert only.models.known["m"].commands == only._pending


def test_finish_and_forget_empty_the_pending_commands(feed: Feed) -> None:
    """Nothing stays behind of commands that finished or whose model is gone."""
    feed(begin("a", 0, 0.0), begin("b", 0, 0.0), begin("b", 1, 0.0))
    feed(finish("a", 0), finish("a", 0), finish("a", 99), wire.Forget(0, "b"), finish("b", 0))
    (only,) = feed.core._producers._trainers.values()
    assert only._pending == {}
    assert only.models.known["a"].commands == only.models.known["a"].queued == {}


def test_aggregate_phases_are_bounded(feed: Feed) -> None:
    """Names without end, over many connections, do not grow the aggregate past its bound."""
    for name in range(MAX_AGGREGATE + 5):
        feed(span(["m"], 0, 1, f"k{name}"))
    assert len(feed.timing().phases) == MAX_AGGREGATE
    assert feed.timing().delivery.series_refused == 5


@pytest.mark.parametrize("lane", [None, "sampler"])
def test_accounts_are_bounded(feed: Feed, lane: str | None) -> None:
    """Commands that never reach the gpu lane (given up, or run on another lane) leave a bounded
    account behind, which is whole all the same."""
    for number in range(10_000):
        feed(begin("m", number, 2.0 * number))
        if lane is not None:
            ids = [f"m:{number}"]
            feed(span(["m"], 2.0 * number, 2.0 * number + 0.5, "forward", ids=ids, lane=lane))
        feed(finish("m", number, 2.0 * number + 1.0))
    (only,) = feed.core._producers._trainers.values()
    assert len(only.models.known["m"].account._pieces) <= MAX_PIECES
    step = feed.timing("m").step
    assert step is not None
    assert step.overhead_s + step.client_s == step.wall_s > 19_000


def test_boots_are_bounded(feed: Feed) -> None:
    """Children that came and went are let go of; so many connected at once are refused."""
    for child in range(2 * MAX_BOOTS):
        feed.core.connect(hello(f"child{child}", parent="boot"), 0.0)
        feed.core.disconnect(f"child{child}", 0.0)
    assert len(feed.core._producers._boots) == MAX_BOOTS
    feed(span(["m"], 0, 1))
    assert feed.timing("m").phases["forward_backward.execute"].count == 1

    core = CriticalPath()
    for boot in range(MAX_BOOTS):
        core.connect(hello(f"boot{boot}"), 0.0)
    with pytest.raises(wire.ProtocolError, match="256 producers are known already") as refused:
        core.connect(hello("one more"), 0.0)
    assert refused.value.code == "busy"


def test_bounds_are_the_documented_ones() -> None:
    """The contract's figures."""
    assert producers.MAX_SERIES == 8192
    assert trainer.MAX_PENDING == 4096
