"""Who reports: restarts, several engines, forked children, backends, and numbering."""

from __future__ import annotations

import pytest

from lilo_engine_hook import wire
from lilo_sidecar.core.critical_path import CriticalPath
from lilo_sidecar.core.producers import MAX_BOOTS, MAX_EARLY, MAX_EARLY_BYTES
from lilo_sidecar.core.timing import Health
from lilo_sidecar.core.trainer import Trainer
from support.feed import Feed, begin, hello, span


def executions(feed: Feed, model: str | None = None) -> int:
    """How many executions are in the answer."""
    phases = feed.timing(model).phases
    return phases["forward_backward.execute"].count if phases else 0


def test_batch_sent_again_is_applied_once() -> None:
    """Events are numbered: a resent or overlapping batch adds only what is new."""
    core = CriticalPath()
    feed = Feed(core)
    events = tuple(span(["m"], i, i + 1) for i in range(4))
    assert feed(*events[:2]) == 2
    assert core.apply("boot", wire.Batch(1, 0, 0, events[:2]), 0.0) == 2
    assert core.apply("boot", wire.Batch(2, 0, 0, events[1:]), 0.0) == 4
    assert executions(feed, "m") == 4
    assert feed.timing().delivery.applied == 4
    assert core.acked("boot") == 4


def test_gap_in_the_numbers_is_counted() -> None:
    """Events that an earlier sidecar took are not in these numbers, and the answer says so."""
    core = CriticalPath()
    feed = Feed(core)
    assert core.acked("boot") == 0
    core.apply("boot", wire.Batch(11, 0, 0, (span(["m"], 0, 1),)), 0.0)
    delivery = feed.timing("m").delivery
    assert (delivery.applied, delivery.missed) == (1, 10)
    assert core.acked("boot") == 11


def test_hook_totals_reach_the_answer_once() -> None:
    """Dropped and rejected are totals since the boot; repeated and older ones add nothing."""
    feed = Feed(CriticalPath())
    feed(dropped=5, rejected=1)
    feed(span(["m"], 0, 1), dropped=7, rejected=1)
    feed(dropped=6, rejected=0)
    delivery = feed.timing("m").delivery
    assert (delivery.dropped, delivery.rejected) == (7, 1)


def test_restarted_trainer_starts_afresh() -> None:
    """A new boot in the place of one that is gone: the old one's lifetime aggregate comes back
    to be printed, and no figure of it stays."""
    core = CriticalPath()
    old = Feed(core, hello("old", started=0.0))
    old(wire.Gauge(3.0, "backend_ready"), span(["m"], 0, 1))
    old.timing(None, reset=True)
    old(span(["m"], 1, 3))
    core.disconnect("old", 5.0)
    new = Feed(core, hello("new", started=6.0), now=7.0)
    (line,) = new.ended
    assert line.model_id == "*"
    assert line.phases["forward_backward.execute"].total_s == 3.0
    assert line.gauges == {"trainer.backend_ready_s": 3.0}
    assert line.uptime_s == 7.0
    answer = core.timing(None, reset=False, now=8.0)
    assert (answer.phases, answer.gauges, answer.uptime_s) == ({}, {}, 2.0)
    assert answer.delivery.applied == 0
    last = core.timing("m", reset=False, now=8.0)
    assert (last.phases["forward_backward.execute"].count, last.interval.final) == (2, True)
    new(wire.Register(9.0, "m"))
    again = core.timing("m", reset=False, now=10.0)
    assert (again.phases, again.interval.final) == ({}, False)
    assert core._producers.shared.budget.used == 0


def test_same_trainer_reconnecting_goes_on() -> None:
    """A connection that broke is no restart."""
    core = CriticalPath()
    feed = Feed(core)
    feed(span(["m"], 0, 1))
    core.disconnect("boot", 0.0)
    assert not core.health(0.0).connected
    assert core.connect(hello(), 1.0) == []
    feed(span(["m"], 1, 2))
    assert executions(feed, "m") == 2
    assert core.health(0.0).connected


def test_engines_side_by_side_keep_apart_and_add_up() -> None:
    """Two engines in one container: each model its own, the aggregate both; the end of one is
    noticed when the next appears, and leaves the other as it was."""
    core = CriticalPath()
    a, b = Feed(core, hello("a")), Feed(core, hello("b"))
    a(span(["ma"], 0, 1))
    b(span(["mb"], 0, 2))
    assert (a.ended, b.ended) == ([], [])
    assert (executions(a, "ma"), executions(a, "mb"), executions(a)) == (1, 1, 2)
    core.disconnect("a", 0.0)
    c = Feed(core, hello("c"))
    (line,) = c.ended
    assert line.phases["forward_backward.execute"].total_s == 1.0
    assert (executions(c, "ma"), executions(c, "mb"), executions(c)) == (1, 1, 1)
    assert (c.timing("ma").interval.final, c.timing("mb").interval.final) == (True, False)


def test_forked_child_adds_to_its_parents_trainer() -> None:
    """A child is no restart: its events join, even after the parent is gone, and even when the
    sidecar hears it first."""
    core = CriticalPath()
    parent = Feed(core, hello("parent"))
    parent(span(["m"], 0, 1))
    child = Feed(core, hello("child", parent="parent"))
    core.disconnect("parent", 0.0)
    child(span(["m"], 1, 2))
    grandchild = Feed(core, hello("grandchild", parent="parent"))
    grandchild(span(["m"], 2, 3))
    assert executions(child, "m") == 3
    assert child.ended == grandchild.ended == []

    core = CriticalPath()
    child = Feed(core, hello("child", parent="parent"))
    child(span(["m"], 0, 1))
    parent = Feed(core, hello("parent"))
    parent(span(["m"], 1, 2))
    assert executions(parent, "m") == 2


def test_backend_adds_to_the_engine_that_has_the_model() -> None:
    """A backend owns nothing: its spans go to their model's engine, and it is no
    restart."""
    core = CriticalPath()
    backend = Feed(core, hello("backend", role="backend"))
    assert not core.health(0.0).connected
    assert core.health(0.0).producers == 1
    first, second = Feed(core, hello("first")), Feed(core, hello("second"))
    first(wire.Register(0, "m"))
    second(wire.Register(0, "n"))
    backend(span(["m"], 1, 2), span(["n"], 2, 4), dropped=2)
    assert (executions(first, "m"), executions(first, "n")) == (1, 1)
    (owner, other) = core._producers._trainers.values()
    assert (list(owner.models.known), list(other.models.known)) == (["m"], ["n"])
    first(wire.Forget(5, "m"))
    backend(span(["m"], 5, 6))
    assert "m" not in owner.models.known.keys() | other.models.known.keys(), (
        "not brought back by anybody"
    )
    assert first.timing("m").delivery.dropped == 2
    core.disconnect("first", 0.0)
    core.disconnect("second", 0.0)
    third = Feed(core, hello("third"))
    assert len(third.ended) == 2


def test_step_is_the_engines_not_the_one_a_backend_began() -> None:
    """A device span heard before its model's engine told of it does not hide the account."""
    core = CriticalPath()
    first, _ = Feed(core, hello("first")), Feed(core, hello("second"))
    backend = Feed(core, hello("backend", role="backend"))
    backend(span(["m"], 0, 1, "device:forward", lane="device"))
    first(begin("m", 0, 0.0), span(["m"], 1.0, 3.0, ids=["m:0"]))
    step = first.timing("m").step
    assert step is not None
    assert (step.wall_s, step.mine_s) == (3.0, 2.0)


def test_start_of_a_trainer_is_its_own_processes() -> None:
    """After a restart of the sidecar a forked child may be heard first; the trainer's start is
    the parent's all the same."""
    core = CriticalPath()
    Feed(core, hello("child", parent="parent", started=900.0))
    parent = Feed(core, hello("parent", started=100.0))
    parent(wire.Gauge(150.0, "serving_ready"))
    answer = core.timing(None, reset=False, now=1000.0)
    assert (answer.uptime_s, answer.gauges["trainer.serving_ready_s"]) == (900.0, 50.0)


def test_trainer_that_is_gone_does_nothing() -> None:
    """Its last operation is not shown as one that runs, nor hides another trainer's."""
    core = CriticalPath()
    gone, here = Feed(core, hello("gone")), Feed(core, hello("here"))
    gone(wire.State(10.0, ("a",), "executing:forward"))
    here(wire.State(90.0, ("b",), "executing:optim_step"))
    assert core.health(100.0).lanes["gpu"].operation == "forward"
    core.disconnect("gone", 95.0)
    assert core.health(100.0).lanes["gpu"].operation == "optim_step"
    core.disconnect("here", 96.0)
    assert core.health(100.0).lanes == {}


def test_the_boot_longest_gone_is_let_go_first() -> None:
    """A producer that is away for a moment keeps its place in the numbering."""
    core = CriticalPath()
    feed = Feed(core)
    feed(span(["m"], 0, 1))
    for child in range(MAX_BOOTS - 1):
        core.connect(hello(f"child{child}", parent="boot"), 0.0)
        core.disconnect(f"child{child}", 0.0)
    core.disconnect("boot", 0.0)
    core.connect(hello("one more", parent="boot"), 0.0)
    core.connect(hello(), 0.0)
    assert core.acked("boot") == 1


def test_backend_may_be_heard_before_its_engine() -> None:
    """Events of a backend wait for the first engine, up to a bound; beyond it they are counted
    as dropped. None is `applied` that is in no figure."""
    core = CriticalPath()
    backend = Feed(core, hello("backend", role="backend"))
    for _ in range(MAX_EARLY + 10):
        backend(span(["m"], 0, 1, "device:forward", lane="device"))
    early = backend.timing().delivery
    assert (early.applied, early.dropped) == (0, 10)
    engine = Feed(core, hello("engine"))
    backend(span(["m"], 0, 1, "device:forward", lane="device"))
    answer = engine.timing("m")
    assert answer.phases["forward.device"].count == MAX_EARLY + 1
    assert (answer.delivery.applied, answer.delivery.dropped) == (MAX_EARLY + 1, 10)


def test_early_events_are_bounded_in_bytes_as_well() -> None:
    """However long they are, what is put by has a few megabytes."""
    core = CriticalPath()
    backend = Feed(core, hello("backend", role="backend"))
    long = span(["m"], 0, 1, "device:forward", ids=["i" * 320] * 300, lane="device")
    fitting = MAX_EARLY_BYTES // len(wire.encode_event(long))
    assert 0 < fitting < 100
    for _ in range(100):
        backend(long)
    assert backend.timing().delivery.dropped == 100 - fitting
    Feed(core, hello("engine"))
    assert backend.timing().delivery.applied == fitting
    backend(long)
    assert backend.timing().delivery.applied == fitting + 1


def test_early_event_that_no_hook_makes_is_dropped() -> None:
    """One longer than events may be: it alone, and it is counted."""
    core = CriticalPath()
    backend = Feed(core, hello("backend", role="backend"))
    short = span(["m"], 0, 1, "device:forward", lane="device")
    huge = span(["m"], 0, 1, "device:forward", ids=["i" * 320] * 600, lane="device")
    backend(short, huge, short)
    Feed(core, hello("engine"))
    delivery = backend.timing().delivery
    assert (delivery.sent, delivery.applied, delivery.dropped) == (3, 2, 1)


def test_health_tells_who_is_there() -> None:
    """Whether an engine is connected, when anything was last heard, and how many producers."""
    core = CriticalPath()
    assert core.health(0.0).last_heard is None
    feed = Feed(core, now=5.0)
    assert core.health(9.0).last_heard == 5.0
    core.apply("boot", wire.Batch(1, 0, 0, (span(["m"], 0, 1),)), 6.5)
    assert core.health(9.0).last_heard == 6.5
    assert core.health(9.0).producers == 1
    core.disconnect(feed.who.boot_id, 8.0)
    assert core.health(9.0) == Health(False, 8.0, 0, {}, faults=0, started=0.0, gauges={})


def test_answer_before_any_trainer() -> None:
    """An empty sidecar answers with nothing, and no uptime."""
    answer = CriticalPath().timing("m", reset=True, now=1.0)
    assert (answer.phases, answer.gauges, answer.uptime_s) == ({}, {}, None)


def test_fault_in_one_event_costs_that_event(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A fault of the core's own: the event is dropped and counted, its neighbours are applied,
    and the log says where it was without quoting what was sent."""
    feed = Feed(CriticalPath())
    real = Trainer.apply

    def apply(self: Trainer, event: wire.Event) -> None:
        if isinstance(event, wire.Begin):
            raise KeyError(event.model)
        real(self, event)

    monkeypatch.setattr(Trainer, "apply", apply)
    assert feed(span(["m"], 0, 1), wire.Begin(1, "m", "m:1", 1, "k", None), span(["m"], 1, 2)) == 3
    answer = feed.timing("m")
    assert answer.phases["forward_backward.execute"].count == 2
    assert (answer.delivery.sent, answer.delivery.applied, answer.delivery.dropped) == (3, 2, 1)
    assert not answer.interval.complete
    assert feed.core.health(0.0).faults == 1
    (message,) = caplog.messages
    assert message.startswith("a fault while applying a Begin, which is dropped: KeyError at test_")
    assert "'m'" not in message
