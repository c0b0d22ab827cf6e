"""The outbox: numbers, frames, and what a number without a frame means."""

from __future__ import annotations

import pytest

from lilo_engine_hook import wire
from lilo_engine_hook._outbox import NO_TOTALS, Outbox

EVENT = wire.encode_event(wire.Gauge(1.0, "backend_ready"))


def batch(events: int) -> wire.Packed:
    return wire.join([EVENT] * events)


def first_seq(frame: bytes) -> int:
    message = wire.decode(frame[4:])
    assert isinstance(message, wire.Batch)
    return message.first_seq


def test_events_that_could_not_be_kept_have_their_numbers() -> None:
    """Whatever goes wrong on the way into a frame: the next frame begins after them, so that the
    sidecar counts them."""
    outbox = Outbox()
    outbox.add([batch(1)], NO_TOTALS)
    broken = wire.Packed(2, None)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        outbox.add([batch(1), broken], NO_TOTALS)
    assert outbox.events == 2
    outbox.add([batch(1)], NO_TOTALS)
    frames = list(iter(outbox.next_unsent, None))
    assert [first_seq(frame) for frame in frames] == [1, 2, 5]


def test_gap_at_the_end_is_one_until_the_sidecar_knows() -> None:
    """Behind frames that are still held there is none: they show it."""
    outbox = Outbox()
    assert not outbox.ends_in_gap
    outbox.add([batch(wire.MAX_EVENTS_PER_BATCH), batch(1)], NO_TOTALS)
    outbox.discard_first()
    assert not outbox.ends_in_gap
    outbox.discard_first()
    assert outbox.ends_in_gap
    assert first_seq(outbox.totals(NO_TOTALS)) == wire.MAX_EVENTS_PER_BATCH + 2
    outbox.acknowledge(wire.MAX_EVENTS_PER_BATCH + 1)
    assert not outbox.ends_in_gap


def test_acknowledgement_between_frames_keeps_what_is_not_whole() -> None:
    """A frame goes once its last event is acknowledged."""
    outbox = Outbox()
    outbox.add([batch(3)], NO_TOTALS)
    outbox.acknowledge(2)
    assert outbox.events == 3
    outbox.acknowledge(3)
    assert (outbox.events, outbox.bytes) == (0, 0)


def test_acknowledgement_of_what_was_not_sent_on_this_connection_is_heeded() -> None:
    """The sidecar has it from an earlier connection; only what follows is sent."""
    outbox = Outbox()
    outbox.add([batch(1)], NO_TOTALS)
    outbox.add([batch(1)], NO_TOTALS)
    outbox.rewind()
    outbox.next_unsent()
    outbox.add([batch(1)], NO_TOTALS)
    outbox.acknowledge(2)
    frame = outbox.next_unsent()
    assert frame is not None
    assert first_seq(frame) == 3
    assert outbox.next_unsent() is None


def test_number_that_no_event_has_is_refused() -> None:
    """Before anything is let go of."""
    outbox = Outbox()
    outbox.add([batch(1)], NO_TOTALS)
    with pytest.raises(wire.ProtocolError, match="acknowledges event 2, and there are 1"):
        outbox.acknowledge(2)
    assert outbox.events == 1
