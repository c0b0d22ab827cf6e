"""Readers of one model, or of all: intervals of their own, acknowledged, bounded."""

from __future__ import annotations

import pytest

from lilo_engine_hook import wire
from lilo_sidecar.core.critical_path import CriticalPath
from lilo_sidecar.core.cursor import Cursor
from lilo_sidecar.core.departed import KEPT_FOR, MAX_DEPARTED
from lilo_sidecar.core.readers import READERS_OF_ALL, READERS_OF_MODEL
from lilo_sidecar.core.timing import Timing
from support.feed import Feed, begin, finish, hello, span


class Loop:
    """A reader that acknowledges what it received."""

    def __init__(self, core: CriticalPath, model: str | None, name: str | None) -> None:
        self.core = core
        self.model = model
        self.name = name
        self.cursor: Cursor | None = None

    def ask(self, *, received: bool = True, now: float = 0.0) -> Timing:
        """End the interval."""
        answer = self.core.timing(
            self.model, reset=True, now=now, reader=self.name, ack=self.cursor
        )
        if received and answer.interval.cursor is not None:
            self.cursor = Cursor.parse(answer.interval.cursor)
        return answer


def count(answer: Timing) -> int:
    """Executions in the answer."""
    series = answer.phases.get("forward_backward.execute")
    return 0 if series is None else series.count


@pytest.fixture
def feed() -> Feed:
    return Feed(CriticalPath("abc"))


def work(feed: Feed, spans: int = 1, model: str = "m") -> None:
    feed(*(span([model], 0, 1) for _ in range(spans)))


def test_each_reader_has_its_own_intervals(feed: Feed) -> None:
    """Neither another reader nor one without a name takes anything away."""
    a, b = Loop(feed.core, "m", "a"), Loop(feed.core, "m", "b")
    nobody = Loop(feed.core, "m", None)
    work(feed, 3)
    assert (count(a.ask()), count(nobody.ask()), count(nobody.ask())) == (3, 3, 0)
    work(feed, 2)
    assert (count(a.ask()), count(b.ask()), count(nobody.ask())) == (2, 5, 2)
    assert (count(a.ask()), count(b.ask())) == (0, 0)


def test_interval_whose_answer_was_lost_comes_again_once(feed: Feed) -> None:
    """With what followed, and from the same cursor; then never more."""
    loop = Loop(feed.core, "m", "loop")
    work(feed)
    first = loop.ask()
    work(feed, 2)
    lost = loop.ask(received=False)
    work(feed, 4)
    assert (count(first), count(lost), count(loop.ask())) == (1, 2, 6)
    assert count(loop.ask()) == 0
    assert lost.interval.begin == first.interval.cursor


def test_request_that_was_given_up_takes_nothing_when_it_comes_late(feed: Feed) -> None:
    """The reader gave up waiting, asked again and was answered; only then the first request is
    dealt with. What it took is in the next interval."""
    loop = Loop(feed.core, "m", "loop")
    work(feed)
    loop.ask()
    given_up = loop.cursor
    work(feed, 2)
    received = loop.ask()
    work(feed, 4)
    feed.core.timing("m", reset=True, now=0.0, reader="loop", ack=given_up)
    work(feed, 8)
    answer = loop.ask()
    assert (count(received), count(answer), answer.interval.complete) == (2, 12, True)


def test_old_acknowledgement_takes_no_reader_back(feed: Feed) -> None:
    """One that is repeated, late, or of a request that was sent twice."""
    loop = Loop(feed.core, "m", "loop")
    work(feed)
    loop.ask()
    old = loop.cursor
    work(feed)
    loop.ask()
    loop.ask()
    loop.cursor = old
    answer = loop.ask()
    assert (count(answer), answer.interval.complete) == (0, True)


def test_acknowledgement_without_a_reset_is_heeded(feed: Feed) -> None:
    """It moves where the interval begins, and ends nothing."""
    loop = Loop(feed.core, "m", "loop")
    work(feed)
    loop.ask()
    work(feed)
    for _ in range(2):
        look = feed.core.timing("m", reset=False, now=0.0, reader="loop", ack=loop.cursor)
        assert (count(look), look.interval.cursor) == (1, None)
    assert count(loop.ask(received=False)) == 1
    assert count(feed.core.timing("m", reset=False, now=0.0, reader="loop")) == 1


def test_new_reader_begins_with_the_model(feed: Feed) -> None:
    """Whatever others have read and reset; merely looking makes no reader."""
    other = Loop(feed.core, "m", "other")
    for _ in range(5):
        work(feed)
        other.ask()
        feed.timing("m", reset=True)
    look = feed.core.timing("m", reset=False, now=0.0, reader="new")
    assert (count(look), count(Loop(feed.core, "m", "new").ask())) == (5, 5)


def test_accounts_are_each_readers_own(feed: Feed) -> None:
    """The wall of a reader's interval runs from its last one's end, and its parts add up to it."""
    feed(wire.Register(0.0, "m"), begin("m", 1, 1.0), span(["m"], 2.0, 4.0, ids=["m:1"]))
    feed(finish("m", 1, 4.0))
    early = Loop(feed.core, "m", "early").ask().step
    feed(begin("m", 2, 10.0), span(["m"], 10.0, 11.0, ids=["m:2"]), finish("m", 2, 11.0))
    late = Loop(feed.core, "m", "late").ask().step
    second = feed.core.timing("m", reset=False, now=0.0, reader="early").step
    assert early
    assert late
    assert second
    assert (early.since, early.until, early.mine_s) == (0.0, 4.0, 2.0)
    assert (late.since, late.until, late.mine_s, late.wall_s) == (0.0, 11.0, 3.0, 11.0)
    acked = Loop(feed.core, "m", "early")
    acked.cursor = Cursor("abc", 1)
    after = acked.ask().step
    assert after
    assert (after.since, after.until, after.mine_s, after.client_s) == (
        4.0,
        11.0,
        1.0,
        6.0,
    )


def test_delivery_is_of_the_interval(feed: Feed) -> None:
    """What was dropped shows in the interval in which it is told, to every reader, once."""
    a, b = Loop(feed.core, "m", "a"), Loop(feed.core, "m", "b")
    feed(wire.Register(0, "m"))
    assert a.ask().interval.complete
    feed(span(["m"], 0, 1), dropped=3, rejected=1)
    first, both = a.ask(), b.ask()
    assert first.delivery._replace(sent=0) == both.delivery._replace(applied=1, sent=0)
    assert (first.delivery.sent, first.delivery.applied) == (5, 1)
    assert (first.delivery.dropped, first.delivery.rejected) == (3, 1)
    assert (both.delivery.sent, both.delivery.applied) == (6, 2)
    assert not first.interval.complete
    assert not both.interval.complete
    again = a.ask()
    assert (again.delivery.sent, again.interval.complete) == (0, True)


def test_loss_of_a_backend_shows_to_every_reader() -> None:
    """Nobody can tell whose events it was that a backend dropped."""
    core = CriticalPath()
    one, two = Feed(core, hello("one")), Feed(core, hello("two"))
    backend = Feed(core, hello("backend", role="backend"))
    one(wire.Register(0, "m"))
    two(wire.Register(0, "n"))
    loops = [Loop(core, model, "loop") for model in ("m", "n", None)]
    assert all(loop.ask().interval.complete for loop in loops)
    backend(span(["m"], 0, 1, "device:forward", lane="device"), dropped=2)
    assert [loop.ask().delivery.dropped for loop in loops] == [2, 2, 2]
    assert [loop.ask().interval.complete for loop in loops] == [True, True, True]


def test_model_whose_registration_was_lost_is_not_complete(feed: Feed) -> None:
    """What was dropped before anything was heard of it may have been of it."""
    feed(wire.Register(0, "known"), dropped=2)
    feed(wire.Register(0, "m"), span(["n"], 0, 1))
    assert feed.timing("m").interval.complete
    assert not feed.timing("n").interval.complete
    assert feed.timing("n").delivery.dropped == 2
    assert not feed.timing("known").interval.complete, "dropped at an unknown moment of its batch"


@pytest.mark.parametrize(("model", "limit"), [("m", READERS_OF_MODEL), (None, READERS_OF_ALL)])
def test_readers_are_bounded_and_the_idlest_goes(feed: Feed, model: str | None, limit: int) -> None:
    """It may come back: with its cursor it goes on after what it received, though a part may be
    merged with that by then, which it is told of, and never gets anything twice."""
    assert {"m": 8, None: 64}[model] == limit
    loops = [Loop(feed.core, model, f"r{number}") for number in range(limit + 1)]
    feed(wire.Register(0, "m"))
    for loop in loops[:limit]:
        work(feed)
        loop.ask()
    loops[0].ask()  # now the second is the idlest
    work(feed)
    loops[limit].ask()
    assert count(loops[0].ask()) == 1, "it has its place"
    back = loops[1].ask()
    assert not back.interval.complete
    assert count(back) < limit
    work(feed, 3)
    again = loops[1].ask()
    assert (count(again), again.interval.complete) == (3, True)


def test_reader_that_was_pushed_out_goes_on_where_its_mark_is_held(feed: Feed) -> None:
    """Nothing is lost as long as the segments are apart."""
    loops = [Loop(feed.core, "m", f"r{number}") for number in range(READERS_OF_MODEL + 1)]
    feed(wire.Register(0, "m"))
    work(feed)
    for loop in loops:
        loop.ask()
    back = loops[0]
    feed.core.timing("m", reset=False, now=0.0, reader="r0", ack=back.cursor)
    position = feed.core._producers._trainers["boot"].models.known["m"].ledger
    assert len(position._segments) <= 3 * READERS_OF_MODEL + 1
    work(feed, 2)
    assert count(back.ask()) <= 2


def test_segments_are_bounded(feed: Feed) -> None:
    """There are at most three marks for each reader, whatever they do."""
    feed(wire.Register(0, "m"))
    loops = [Loop(feed.core, "m", f"r{number}") for number in range(3 * READERS_OF_MODEL)]
    for turn in range(50):
        for number, loop in enumerate(loops[turn % 2 :: 2]):
            work(feed)
            loop.ask(received=number % 3 > 0)
            feed.timing("m", reset=True)
    ledger = feed.core._producers._trainers["boot"].models.known["m"].ledger
    assert len(ledger._segments) <= 3 * READERS_OF_MODEL + 2


def test_cursor_of_a_state_that_was_lost(feed: Feed) -> None:
    """All that is here comes after what the reader received; what came between is lost, which it
    is told of until it has acknowledged."""
    loop = Loop(feed.core, "m", "loop")
    loop.cursor = Cursor("fed", 7)
    feed(wire.Register(0, "m"))
    work(feed, 2)
    answers = [loop.ask(received=False), loop.ask()]
    assert [(count(a), a.interval.complete) for a in answers] == [(2, False), (2, False)]
    assert loop.ask().interval.complete


def test_cursor_from_the_future_is_none_of_this_state(feed: Feed) -> None:
    """The end of the journal was cut off, with marks that were given out."""
    loop = Loop(feed.core, "m", "loop")
    feed(wire.Register(0, "m"))
    work(feed)
    loop.ask()
    loop.cursor = Cursor("abc", 99)
    work(feed)
    answer = loop.ask()
    assert (count(answer), answer.interval.complete) == (2, False)


def test_forgotten_model_stays_readable_for_ten_minutes(feed: Feed) -> None:
    """Its last interval, for each reader, marked as the last; then it is unknown."""
    loop = Loop(feed.core, "m", "loop")
    feed(wire.Register(0, "m"), span(["m"], 0, 1))
    loop.ask()
    feed(span(["m"], 1, 2), begin("m", 5, 2.0), wire.Forget(3.0, "m"))
    work(feed, model="n")
    lost = loop.ask(received=False)
    last = loop.ask(now=KEPT_FOR)
    assert (count(lost), count(last), last.interval.final) == (1, 1, True)
    assert last.step is not None
    assert (last.step.until, last.step.wall_s) == (3.0, 2.0), "its account ends with it"
    assert (last.delivery.sent, last.interval.complete) == (2, True), "later events are not its"
    assert count(loop.ask(now=KEPT_FOR)) == 0
    gone = loop.ask(now=KEPT_FOR + 0.1)
    assert (gone.phases, gone.step, gone.interval.final) == ({}, None, False)
    feed.core.disconnect_all(KEPT_FOR + 0.1)
    assert feed.core._producers.shared.departed._models == {}


def test_departed_models_are_bounded(feed: Feed) -> None:
    """The last 64 are kept."""
    for number in range(MAX_DEPARTED + 5):
        work(feed, model=f"m{number}")
        feed(wire.Forget(1, f"m{number}"))
    kept = [count(feed.timing(f"m{number}")) for number in range(MAX_DEPARTED + 5)]
    assert kept == [0] * 5 + [1] * 64


def test_clock_set_back_keeps_departed_models_no_longer(feed: Feed) -> None:
    """A step of hours in either direction ends their time at once."""
    for step in (3600.0, -3600.0):
        work(feed, model="m")
        feed(wire.Forget(1, "m"))
        assert count(feed.core.timing("m", reset=False, now=0.0)) == 1
        assert count(feed.core.timing("m", reset=False, now=step)) == 0
        feed(wire.Register(2, "m"))


def test_model_that_nobody_reported_has_no_readers(feed: Feed) -> None:
    """Nothing is remembered for whatever somebody asks about."""
    for number in range(1000):
        answer = Loop(feed.core, f"unknown{number}", "loop").ask()
        assert (answer.phases, answer.interval.cursor) == ({}, None)
        assert not feed.core.is_touched(f"unknown{number}", reset=True, ack=None, now=0.0)
