"""What readers are told when trainers and models come and go: nothing twice, no hole unsaid."""

from __future__ import annotations

import pytest

from lilo_engine_hook import wire
from lilo_sidecar.core.critical_path import CriticalPath
from lilo_sidecar.core.cursor import Cursor
from lilo_sidecar.core.timing import Timing
from support.feed import Feed, hello, span

BACKEND = hello("backend", role="backend")


class Loop:
    """A reader; it acknowledges what it received."""

    def __init__(self, core: CriticalPath, model: str | None, name: str | None) -> None:
        self.core = core
        self.model = model
        self.name = name
        self.cursor: Cursor | None = None

    def ask(self, *, received: bool = True) -> Timing:
        """End the interval."""
        answer = self.core.timing(
            self.model, reset=True, now=0.0, reader=self.name, ack=self.cursor
        )
        if received and answer.interval.cursor is not None:
            self.cursor = Cursor.parse(answer.interval.cursor)
        return answer


def told(answer: Timing) -> tuple[dict[str, int], bool]:
    """What was counted, and whether that is said to be all."""
    return {name: phase.count for name, phase in answer.phases.items()}, answer.interval.complete


def spans(model: str, count: int = 1) -> list[wire.Span]:
    return [span([model], 0, 1, "forward")] * count


def device(model: str) -> wire.Span:
    return span([model], 0, 1, "device:forward", lane="device")


@pytest.mark.parametrize("name", [None, "loop"])
def test_trainer_that_is_replaced_beside_another_takes_nothing_along(name: str | None) -> None:
    """The readers of all models go on with what the other one does, and hear of the hole."""
    core = CriticalPath()
    Feed(core, hello("one"))
    other = Feed(core, hello("other"))
    other(*spans("m", 10))
    loop = Loop(core, None, name)
    assert told(loop.ask()) == ({"forward.execute": 10}, True)
    core.disconnect("one", 0.0)
    Feed(core, hello("next"))
    other(*spans("m", 2))
    assert told(loop.ask()) == ({"forward.execute": 2}, False)
    other(*spans("m"))
    assert told(loop.ask()) == ({"forward.execute": 1}, True)


@pytest.mark.parametrize("name", [None, "loop"])
@pytest.mark.parametrize("received", [True, False])
@pytest.mark.parametrize("model", [None, "m"])
def test_whoever_was_told_of_a_trainer_hears_that_it_was_replaced(
    model: str | None, received: bool, name: str | None
) -> None:
    """With a name and without, though the answer was lost."""
    core = CriticalPath()
    old = Feed(core, hello("old"))
    old(wire.Register(0.0, "m"), *spans("m"))
    loop = Loop(core, model, name)
    loop.ask(received=received)
    old(*spans("m"))  # which nobody reads
    core.disconnect("old", 0.0)
    Feed(core, hello("new"))(wire.Register(3.0, "m"), *spans("m", 3))
    assert told(loop.ask()) == ({"forward.execute": 3}, False)
    assert told(loop.ask()) == ({}, True)


@pytest.mark.parametrize("name", [None, "loop"])
def test_whoever_was_told_of_a_model_hears_that_it_was_registered_anew(name: str | None) -> None:
    """What it had not read of the earlier one is not in the new one's figures."""
    core = CriticalPath()
    feed = Feed(core)
    feed(wire.Register(0.0, "m"), *spans("m"))
    loop = Loop(core, "m", name)
    loop.ask()
    feed(*spans("m"), wire.Forget(2.0, "m"), wire.Register(3.0, "m"), *spans("m", 3))
    assert told(loop.ask()) == ({"forward.execute": 3}, False)
    assert told(loop.ask()) == ({}, True)


def test_losses_of_a_backend_are_told_to_those_who_come_after() -> None:
    """They are counted anew with a trainer that takes over alone, and never below zero."""
    core = CriticalPath()
    backend = Feed(core, BACKEND)
    Feed(core, hello("old"))
    backend(device("m"), dropped=5)
    loop = Loop(core, None, "loop")
    assert loop.ask().delivery.dropped == 5
    core.disconnect("old", 0.0)
    Feed(core, hello("new"))
    assert loop.ask().delivery.dropped == 0
    backend(device("m"), dropped=7)
    assert [loop.ask().delivery.dropped, Loop(core, None, "late").ask().delivery.dropped] == [2, 2]


def test_late_span_brings_no_model_of_a_former_trainer_back() -> None:
    """Its last interval stays readable, and the new trainer has no model that nobody forgets."""
    core = CriticalPath()
    old, backend = Feed(core, hello("old")), Feed(core, BACKEND)
    old(wire.Register(0.0, "m"), *spans("m"))
    core.disconnect("old", 0.0)
    new = Feed(core, hello("new"))
    backend(device("m"))
    last = Loop(core, "m", "loop").ask()
    assert (told(last), last.interval.final) == (({"forward.execute": 1}, True), True)
    assert new.timing().phases["forward.device"].count == 1, "it is in the figures of all"


def test_model_of_two_trainers_has_the_same_readers() -> None:
    """A backend's span came before the model's own engine told of it, and went to the other."""
    core = CriticalPath()
    owner, _, backend = Feed(core, hello("owner")), Feed(core, hello("other")), Feed(core, BACKEND)
    backend(*[device("m")] * 5)
    nobody, loop = Loop(core, "m", None), Loop(core, "m", "loop")
    assert told(nobody.ask()) == told(loop.ask()) == ({"forward.device": 5}, True)
    owner(wire.Register(0.0, "m"), *spans("m"))
    assert told(nobody.ask()) == told(loop.ask()) == ({"forward.execute": 1}, True)
    owner(*spans("m", 2), wire.Forget(5.0, "m"))
    last = nobody.ask()
    assert (told(last), last.interval.final) == (({"forward.execute": 2}, True), True)
    assert loop.ask().interval.final


def test_cursor_of_a_model_that_is_not_known_any_more() -> None:
    """Whoever has one had figures, of which there is nothing here."""
    core = CriticalPath()
    asked = core.timing("m", reset=True, now=0.0, reader="loop")
    assert asked.interval.complete
    asked = core.timing("m", reset=True, now=0.0, reader="loop", ack=Cursor("0", 0))
    assert not asked.interval.complete


def test_cursor_of_another_reader_is_not_ones_own() -> None:
    """It takes the reader there, and says so."""
    core = CriticalPath()
    feed = Feed(core)
    feed(wire.Register(0.0, "m"), *spans("m"))
    one, other = Loop(core, "m", "one"), Loop(core, "m", "other")
    one.ask()
    feed(*spans("m"))
    other.ask()
    one.cursor = other.cursor
    assert told(one.ask()) == ({}, False)
    assert told(one.ask()) == ({}, True)


def test_state_that_was_cut_off_is_told_to_every_reader_once() -> None:
    """What it had given out by then is still acknowledged; what it gave out later is not its."""
    core = CriticalPath("abc")
    feed = Feed(core)
    feed(wire.Register(0.0, "m"), *spans("m"))
    readers = [Loop(core, model, name) for model in (None, "m") for name in (None, "loop")]
    for reader in readers:
        reader.ask()
    core.cut_off("def")
    feed(*spans("m"))
    for reader in readers:
        assert told(reader.ask()) == ({"forward.execute": 1}, False)
        assert told(reader.ask()) == ({}, True)
    late = Loop(core, "m", "loop")
    late.cursor = Cursor("abc", 99)
    assert not late.ask().interval.complete
    assert not Loop(core, "m", "fresh").ask().interval.complete, "what was cut off may be of it"
    feed(wire.Register(9.0, "younger"), *spans("younger"))
    assert Loop(core, "younger", "fresh").ask().interval.complete


def test_model_that_moves_leaves_nothing_behind() -> None:
    """Two trainers have it; what the one that it leaves did last is in the next interval, once."""
    core = CriticalPath()
    left, now = Feed(core, hello("left")), Feed(core, hello("now"))
    left(wire.Register(0.0, "m"), *spans("m"))
    now(wire.Register(1.0, "m"), *spans("m"))
    loop = Loop(core, "m", "loop")
    assert told(loop.ask()) == ({"forward.execute": 2}, True)
    left(*spans("m", 3), wire.Forget(5.0, "m"))
    assert told(loop.ask()) == ({"forward.execute": 3}, True)
    now(*spans("m"))
    assert told(loop.ask()) == ({"forward.execute": 1}, True)


def test_first_span_of_a_new_life_is_not_taken_for_a_late_one() -> None:
    """A backend's socket may be read before that of the engine that has registered the model."""
    core = CriticalPath()
    old, backend = Feed(core, hello("old")), Feed(core, BACKEND)
    old(wire.Register(0.0, "m"), *spans("m"))
    core.disconnect("old", 10.0)
    new = Feed(core, hello("new"), now=11.0)
    backend(span(["m"], 12.0, 13.0, "device:forward", lane="device"))
    new(wire.Register(11.5, "m"))
    assert told(Loop(core, "m", "loop").ask()) == ({"forward.device": 1}, True)
