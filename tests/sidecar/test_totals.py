"""Totals since the beginning: they only grow, and nobody's reading takes anything from them."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from lilo_engine_hook import wire
from lilo_sidecar.core.critical_path import CriticalPath
from lilo_sidecar.core.delivery import Delivery
from lilo_sidecar.core.former import Former
from lilo_sidecar.core.records import MAX_AGGREGATE
from lilo_sidecar.core.series import NO_WAIT
from lilo_sidecar.core.totals import Totals
from lilo_sidecar.state.snapshot import dump
from support.feed import Feed, begin, finish, hello, span
from support.schedule import events, random_schedule


def counters(totals: Totals) -> dict[tuple[str, ...], float]:
    """Every figure that must not go back."""
    found: dict[tuple[str, ...], float] = {}
    for name, value in totals.delivery._asdict().items():
        found["delivery", name] = value
    for part, seconds in enumerate(totals.steps.to_tuple()):
        found["steps", str(part)] = seconds
    for phase, series in totals.phases.items():
        figures = (series.count, series.total, series.batch, series.share, *series.wait)
        found |= {("phase", phase, str(at)): figure for at, figure in enumerate(figures)}
    for model in totals.models:
        sums = model.sums.to_tuple()
        each = (model.until, model.executions, model.commands, *sums)
        found |= {("model", model.model_id, str(at)): figure for at, figure in enumerate(each)}
    return found


def assert_grown(before: Totals, after: Totals) -> None:
    """Nothing went back, and nothing of what was there is gone."""
    now = counters(after)
    for name, value in counters(before).items():
        assert now[name] >= value, name


@pytest.mark.parametrize("seed", range(40))
def test_totals_only_grow_whoever_reads_what(seed: int) -> None:
    """Readers that reset at random moments leave every total as it was; events only add to it,
    down to the last digit."""
    random = Random(seed)
    core, undisturbed = CriticalPath(), CriticalPath()
    feed, other = Feed(core), Feed(undisturbed)
    # Times as they really are: so large that their differences are rounded.
    offset, scale = 1.7e9, random.random()
    seen = [core.totals()]
    for event in events(random_schedule(random, 40), random):
        moved = _moved(event, offset, scale)
        feed(moved)
        other(moved)
        seen.append(core.totals())
        if random.random() < 0.3:
            model = random.choice((None, "a", "b", "c"))
            reader = random.choice((None, "loop"))
            core.timing(model, reset=True, now=0.0, reader=reader)
            undisturbed.timing(model, reset=False, now=0.0)  # which settles, too
            seen.append(core.totals())
    for before, after in pairwise(seen):
        assert_grown(before, after)
    parts = zip(*(model.sums.to_tuple() for model in core.totals().models), strict=True)
    steps = core.totals().steps.to_tuple()
    assert steps == pytest.approx(tuple(map(sum, parts)), rel=1e-12, abs=1e-9)
    one, two = counters(core.totals()), counters(undisturbed.totals())
    assert one == pytest.approx(two, rel=1e-12, abs=1e-9)


def _moved(event: wire.Event, offset: float, scale: float) -> wire.Event:
    """The same event at other times."""
    names = ("t0", "t1") if isinstance(event, wire.Span) else ("t",)
    return event._replace(**{n: offset + scale * getattr(event, n) for n in names})


def test_models_parts_add_up_to_its_time() -> None:
    """Since the model was first heard of, over all that was taken by readers meanwhile."""
    feed = Feed(CriticalPath())
    feed(wire.Register(10.0, "m"), span(["m"], 11, 12, "accept"))
    feed.timing("m", reset=True)
    feed(begin("m", 1, 13.0), span(["m", "n"], 14, 18, ids=["m:1", "n:1"]), finish("m", 1, 18.0))
    feed.timing("m", reset=True)
    feed(begin("m", 2, 20.0))
    assert feed.core.totals().models[0].until == 18.0  # as far as it was settled
    feed.timing("m")
    m, n = feed.core.totals().models
    assert (m.model_id, m.since, m.until) == ("m", 10.0, 20.0)
    assert m.sums.to_tuple() == (3.0, 2.0, 0.0, 2.0, 0.0, 3.0)
    assert sum(m.sums.to_tuple()) == m.until - m.since
    assert (m.queued, m.running) == (1, 0)
    assert (n.model_id, n.queued, n.running) == ("n", 0, 0)


def test_time_of_models_that_are_gone_stays() -> None:
    """All models' time is the sum of the models', also of one that is forgotten, comes back and
    goes with its trainer."""
    core = CriticalPath()
    feed = Feed(core, hello("old"))
    feed(begin("m", 1, 0.0), span(["m"], 1, 3, ids=["m:1"]), finish("m", 1, 3.0))
    feed(wire.Forget(5.0, "m"))
    assert core.totals().models == []
    assert core.totals().steps.to_tuple() == (2.0, 0.0, 0.0, 1.0, 0.0, 2.0)
    feed(wire.Register(6.0, "m"), span(["m"], 7, 8, "accept"))
    core.disconnect("old", 9.0)
    Feed(core, hello("new", started=10.0))
    assert core.totals().models == []
    assert core.totals().steps.to_tuple() == (3.0, 0.0, 0.0, 2.0, 0.0, 2.0)


def test_batches_and_their_commands_are_counted() -> None:
    """A batch counts for each of its models, with all the commands in it; a capture is none."""
    feed = Feed(CriticalPath())
    feed(span(["m", "n"], 0, 1, n=5), span(["m"], 1, 2), span(["m"], 2, 3, "capture:save_weights"))
    feed(begin("m", 7, 3.0), span(["m"], 3, 4, "persist:save_weights", lane="checkpoint"))
    m, n = feed.core.totals().models
    assert (m.executions, m.commands) == (2, 6)
    assert (n.executions, n.commands) == (1, 5)


def test_commands_that_run_are_told_from_those_that_wait() -> None:
    """From its submission to its start a command is queued, from then to its finish running."""
    feed = Feed(CriticalPath())

    def depth() -> tuple[int, int]:
        (model,) = feed.core.totals().models
        return model.queued, model.running

    feed(begin("m", 1, 0.0), begin("m", 2, 0.0))
    assert depth() == (2, 0)
    feed(span(["m"], 1, 2, ids=["m:1"]))
    assert depth() == (1, 1)
    feed(finish("m", 1, 2.0))
    assert depth() == (1, 0)


def test_what_a_lane_works_on_does_not_wait() -> None:
    """From the moment that the lane says so: one command of each model in the batch, if it is of
    that kind and was there by then; the span tells of all of them."""
    feed = Feed(CriticalPath())

    def depth() -> dict[str, tuple[int, int]]:
        return {m.model_id: (m.queued, m.running) for m in feed.core.totals().models}

    feed(begin("m", 1, 0.0), begin("m", 2, 0.0), begin("n", 1, 0.0, "forward"), begin("o", 1, 0.0))
    feed(wire.State(1.0, ("m", "n", "late"), "executing:forward_backward"), begin("late", 1, 1.5))
    assert depth() == {"m": (1, 1), "n": (1, 0), "o": (1, 0), "late": (1, 0)}
    feed(span(["m"], 1, 2, ids=["m:1", "m:2"]))
    assert depth()["m"] == (0, 2)
    feed(finish("m", 1, 2.0), finish("m", 2, 2.0), wire.State(2.0, None, "idle"))
    assert depth() == {"m": (0, 0), "n": (1, 0), "o": (1, 0), "late": (1, 0)}


def test_looking_changes_nothing() -> None:
    """The state is the same to the byte, also where an account waits to be settled."""
    feed = Feed(CriticalPath())
    feed(begin("m", 1, 0.0), span(["n"], 1, 2), begin("m", 2, 5.0), finish("m", 1, 6.0))
    before = dump(feed.core)
    assert [model.model_id for model in feed.core.totals().models] == ["m", "n"]
    assert dump(feed.core) == before


def test_totals_are_of_one_moment() -> None:
    """What comes later is not in totals that were taken before: they may be read elsewhere."""
    core = CriticalPath()
    first = core.totals()
    feed = Feed(core)
    feed(begin("m", 1, 0.0), span(["m"], 1, 2, ids=["m:1"]), finish("m", 1, 2.0))
    second, seen = core.totals(), counters(core.totals())
    feed(begin("m", 2, 3.0), span(["m"], 4, 5, ids=["m:2"]), finish("m", 2, 5.0))
    core.disconnect("boot", 6.0)
    Feed(core, hello("new"))
    assert first.phases == {}
    assert counters(second) == seen
    assert counters(core.totals()) != seen


def test_what_replaced_trainers_had_stays() -> None:
    """A trainer that takes another's place begins with its figures, and models; the totals of
    all models together go on, and a backend's lost events with them."""
    core = CriticalPath()
    old = Feed(core, hello("old"))
    backend = Feed(core, hello("gpu", role="backend"))
    old(span(["m"], 0, 3), dropped=2)
    backend(dropped=7)
    before = core.totals()
    core.disconnect("old", 5.0)
    core.disconnect("gpu", 5.0)
    new = Feed(core, hello("new", started=6.0))
    assert core.totals().models == []
    assert core.totals().delivery == before.delivery
    assert core.totals().delivery == Delivery(sent=10, applied=1, dropped=9)
    new(span(["m"], 7, 8))
    totals = core.totals()
    assert totals.phases["forward_backward.execute"].count == 2
    assert totals.phases["forward_backward.execute"].total == 4.0
    assert totals.delivery.applied == 2
    assert [model.since for model in totals.models] == [7.0]


def test_trainers_that_run_together_add_up() -> None:
    """Each with its own models; one that only heard the name of a model has no figures of it."""
    core = CriticalPath()
    one, two = Feed(core, hello("one")), Feed(core, hello("two"))
    one(begin("m", 1, 0.0), span(["m"], 1, 2, ids=["m:1"]))
    two(begin("n", 1, 0.0), span(["n"], 1, 3, ids=["n:1"]))
    two(span(["m"], 3, 4, "forward_backward.device", lane="device"))
    totals = core.totals()
    assert totals.phases["forward_backward.execute"].total == 3.0
    assert {model.model_id: model.sums.mine for model in totals.models} == {"m": 1.0, "n": 2.0}


def test_phases_of_replaced_trainers_are_bounded() -> None:
    """Trainers that come and go, each with names of its own, leave no more phases than one may
    have; records of those over it are counted."""
    former = Former()
    core = CriticalPath()
    for number in range(3):
        feed = Feed(core, hello(f"boot-{number}"))
        (trainer,) = core._producers.trainers
        for phase in range(MAX_AGGREGATE):
            trainer.records.add(f"{number}-{phase}", 1.0, 1, 0.0, NO_WAIT)
        former.add(trainer)
        core.disconnect(feed.who.boot_id, 0.0)
    assert len(former.phases) == MAX_AGGREGATE
    assert former.delivery.series_refused == 2 * MAX_AGGREGATE


@pytest.mark.parametrize("seed", range(20))
def test_looking_ahead_is_what_a_question_would_find(seed: int) -> None:
    """At any moment of random schedules: as far as a reader's answer would reach, with the same
    parts, and nothing changes by it."""
    random = Random(seed)
    core = CriticalPath()
    feed = Feed(core)
    for event in events(random_schedule(random, 30), random):
        feed(event)
        if core.totals().models and random.random() < 0.2:
            before = dump(core)
            ahead = core.totals(ahead=True).models
            assert dump(core) == before
            model = random.choice(ahead)
            core.timing(model.model_id, reset=random.random() < 0.5, now=0.0)
            settled = {found.model_id: found for found in core.totals().models}[model.model_id]
            assert (model.since, model.until) == (settled.since, settled.until)
            assert model.sums.to_tuple() == pytest.approx(settled.sums.to_tuple(), abs=1e-9)
