"""The queue: what was left in it comes out packed, each event once or counted."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import pytest

from lilo_engine_hook import TimingObserver, wire
from lilo_engine_hook._queue import MAX_EVENTS, EventQueue, Item
from lilo_engine_hook.wire.columns import MIN_EVENTS
from support.receiver import receiver


def test_events_that_are_too_long_for_one_batch_go_in_several(tmp_path: Path) -> None:
    """None is lost by being packed together, and the order stays."""
    models = [f"{number:0250}" for number in range(256)]
    with receiver(tmp_path / "timing.sock") as far:
        observer = TimingObserver(far.path)
        for number in range(100):
            observer.span(models, "forward", "gpu", float(number), 1000.0)
        far.wait_for(lambda: len(far.events) == 100)
        observer.close()
    assert [event.t0 for event in far.events if isinstance(event, wire.Span)] == [*range(100)]
    assert far.rejected == 0


def test_one_wrong_call_among_many_costs_only_itself(tmp_path: Path) -> None:
    """Also a value whose type itself cannot be looked at: it spoils the look at all, not all."""

    class Meta(type):
        def __hash__(cls) -> int:
            raise SystemExit("touched")

    class Hostile(metaclass=Meta):
        pass

    with receiver(tmp_path / "timing.sock") as far:
        observer = TimingObserver(far.path)
        for wrong in ("", None, Hostile(), "\ud800"):
            for number in range(100):
                observer.register_model(wrong if number == 50 else f"m{number}")  # type: ignore[arg-type]
        far.wait_for(lambda: len(far.events) == 396 and far.rejected == 4)
        observer.close()
    assert [event.model for event in far.events if isinstance(event, wire.Register)] == 4 * [
        f"m{number}" for number in range(100) if number != 50
    ]


def test_room_is_exact_while_events_are_moved_out() -> None:
    """Whenever the engine looks: what waits elsewhere, what was moved out and the room that is left
    are the bound, but for the one event that is being moved."""
    queue = EventQueue()
    room: list[int] = []

    class Watched(deque[Item]):
        def popleft(self) -> Item:
            room.append(queue.room)
            return super().popleft()

    queue.items = Watched([(wire.REGISTER, 1.0, "m")] * 300)
    queue.take(1000, 2**40)
    assert room == [MAX_EVENTS - 1000 - moved for moved in range(1, 301)]
    assert queue.room == MAX_EVENTS - 1000 - 300


def test_bytes_are_bounded_within_a_batch_too() -> None:
    """Of many large events at once only so many are kept as fit; the others are counted."""
    queue = EventQueue()
    ids = tuple(f"{number:0100}" for number in range(1000))
    items = [(wire.SPAN, ("m",), "x", "gpu", 1.0, 2.0, ids, None, 1, True, None)] * 100
    queue.items.extend(items)
    limit = 10 * 100_000
    batches = queue.take(0, limit)
    kept = sum(batch.events for batch in batches)
    assert limit <= sum(len(batch.array) for batch in batches) < limit + 2 * 100_000
    assert kept + queue.dropped.value() == len(items)


def test_events_for_which_there_is_no_memory_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the batch that could not be put together, each once; the next one goes on."""
    queue = EventQueue()
    queue.items.append((wire.REGISTER, 1.0, None))
    queue.items.extend([(wire.REGISTER, 1.0, "m")] * 199)
    joined = wire.join

    def join_once_there_is_room(packed: Sequence[bytes]) -> wire.Packed:
        monkeypatch.setattr(wire, "join", joined)
        raise MemoryError

    monkeypatch.setattr(wire, "join", join_once_there_is_room)
    batches = queue.take(0, 2**40)
    assert (queue.rejected.value(), queue.dropped.value()) == (1, wire.MAX_EVENTS_PER_BATCH - 1)
    assert sum(batch.events for batch in batches) == 200 - wire.MAX_EVENTS_PER_BATCH


class Kind(enum.Enum):
    """As engines have them."""

    FORWARD = "forward"


def test_kinds_that_are_enums_are_no_reason_to_look_closer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of commands nor of what lanes do."""
    queue = EventQueue()
    monkeypatch.delattr(EventQueue, "_one_by_one")
    items: list[tuple[object, ...]] = [
        (wire.BEGIN, 1.0, "m", "m:0", 0, Kind.FORWARD, None),
        (wire.ACTIVITY, 1.0, "gpu", "m", "m:0", Kind.FORWARD),
        (wire.ACTIVITY, 1.0, "gpu", None, None, None),
    ]
    queue.items.extend(items * MIN_EVENTS)
    (packed,) = queue.take(0, 2**40)
    batch = wire.decode(wire.encode_batch(1, 0, 0, packed)[4:])
    assert isinstance(batch, wire.Batch)
    assert batch.events[:3] == (
        wire.Begin(1.0, "m", "m:0", 0, "forward", None),
        wire.Activity(1.0, "gpu", "m", "m:0", "forward"),
        wire.Activity(1.0, "gpu", None, None, None),
    )
