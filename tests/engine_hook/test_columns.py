"""Many events at once: what the look at columns lets through, the close look would, unchanged."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lilo_engine_hook import wire
from lilo_engine_hook.wire.columns import MIN_EVENTS

RIGHT: dict[int, tuple[Any, ...]] = {
    wire.REGISTER: (1.5, "m"),
    wire.FORGET: (1.5, "m"),
    wire.BEGIN: (1.5, "m", "m:0", 0, "forward", 3.5),
    wire.FINISH: (1.5, "m", "m:0"),
    wire.SPAN: (("a", "b"), "forward", "gpu", 1.0, 2.0, ("a:0", "b:0"), (1, 2), 2, True, (1.0, 2)),
    wire.STATE: (1.5, ("a", "b"), "executing:" + "x" * 80),
    wire.ACTIVITY: (1.5, "gpu", "m", "m:0", "backward"),
    wire.GAUGE: (1.5, "backend_ready"),
}
NAMES = {"forward", "gpu", "backward"}
WRONG: tuple[object, ...] = (
    *(None, True, -1, 2**53, 10**400, 1.5, math.nan, math.inf, -math.inf, 1e12),
    *("", "x" * 91, "x" * 400, "\u20ac", b"m", [], {}, object(), float),
    *(
        (),
        ("",),
        (1,),
        (None,),
        ("m",) * 257,
        ("m",) * 1025,
        ("x" * 400,),
        (math.nan,),
        (1.0, -1.0),
    ),
)


def events(*others: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Some of each kind that are right, and in the midst of them these."""
    right = [(number, *fields) for number, fields in RIGHT.items()]
    return [*right, *right, *others, *right]


def stays(number: int, fields: tuple[Any, ...]) -> bool:
    """Whether the close look leaves an event just as it is."""
    try:
        event = wire.parse_event(wire.KINDS[number], fields)
    except wire.ProtocolError:
        return False
    return repr(tuple(event)) == repr(fields)  # 1, 1.0 and True are equal


def test_names_of_right_events() -> None:
    """All of them, whatever the kind, and None for what is left out."""
    assert wire.plain_names(events()) == NAMES
    idle = (wire.ACTIVITY, 1.5, "persist", None, None, None)
    assert wire.plain_names(events(idle)) == {*NAMES, "persist"}


@pytest.mark.parametrize("number", RIGHT)
def test_each_field_of_each_kind_is_looked_at(number: int) -> None:
    """With values of all sorts in its place: let through is what the close look would leave."""
    right = RIGHT[number]
    for place in range(len(right)):
        for value in WRONG:
            fields = (*right[:place], value, *right[place + 1 :])
            found = wire.plain_names(events((number, *fields)))
            assert (found is not None) == stays(number, fields), (place, value)


@pytest.mark.parametrize(
    "event",
    [
        *((), (9, 1.5, "m"), (0,), (True, 1.5, "m"), (1.0, 1.5, "m"), ("1", 1.5, "m")),
        *(((), 1.5), ({}, 1.5), (({},), 1.5)),
        *((wire.REGISTER, 1.5), (wire.REGISTER, 1.5, "m", "m"), [wire.REGISTER, 1.5, "m"], None),
    ],
    ids=repr,
)
def test_what_is_no_event_is_not_let_through(event: Any) -> None:
    """Of no kind, of another length, or no tuple."""
    assert wire.plain_names(events(event)) is None


@given(
    st.lists(
        st.tuples(
            st.sampled_from(sorted(RIGHT)),
            st.none() | st.integers(0, 9),
            st.none()
            | st.booleans()
            | st.integers(-1, 2**53)
            | st.floats()
            | st.sampled_from([*WRONG, "m", "idle", "gpu", "serving_ready"]),
        ),
        min_size=MIN_EVENTS,
        max_size=40,
    )
)
@settings(deadline=None)
def test_columns_agree_with_a_close_look_at_each(made: list[tuple[int, int | None, Any]]) -> None:
    """Together they pass exactly if each by itself stays as it is."""
    changed = []
    for number, place, value in made:
        fields = list(RIGHT[number])
        if place is not None and place < len(fields):
            fields[place] = value
        changed.append((number, *fields))
    found = wire.plain_names(changed)
    assert (found is not None) == all(stays(event[0], event[1:]) for event in changed)


def test_nan_among_times_is_seen_wherever_it_is() -> None:
    """It is neither less nor more than any number, so the least and the greatest pass it over."""
    right = [(wire.REGISTER, float(t), "m") for t in range(2 * MIN_EVENTS)]
    assert wire.plain_names(right) == set()
    for place in range(len(right)):
        one = [*right[:place], (wire.REGISTER, math.nan, "m"), *right[place + 1 :]]
        assert wire.plain_names(one) is None


def test_large_batch_is_of_the_same_records_as_a_small_one() -> None:
    """Whichever way it was checked."""
    made = [wire.KINDS[event[0]]._make(event[1:]) for event in events()]
    assert len(made) >= MIN_EVENTS
    packed = [wire.encode_event(event) for event in made]
    together = wire.decode(wire.encode_batch(1, 0, 0, wire.join(packed))[4:])
    assert isinstance(together, wire.Batch)
    for event, alone in zip(together.events, packed, strict=True):
        batch = wire.decode(wire.encode_batch(1, 0, 0, wire.join([alone]))[4:])
        assert isinstance(batch, wire.Batch)
        assert (type(event), repr(event)) == (type(batch.events[0]), repr(batch.events[0]))


def test_wrong_event_among_many_is_named() -> None:
    """A refusal says what is wrong, however many are right."""
    wrong = wire.Finish(1.5, "m", "x" * 321)
    packed = [wire.encode_event(event) for event in [wire.Register(1.5, "m")] * 99 + [wrong]]
    with pytest.raises(wire.ProtocolError, match="request_id has 321 characters; allowed: 1 to"):
        wire.decode(wire.encode_batch(1, 0, 0, wire.join(packed))[4:])
