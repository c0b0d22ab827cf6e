"""A look at many events at once, column by column: each check is a loop of the interpreter's own
C code, so it costs a fraction of what it takes to say what is wrong with one event. Nearly always
nothing is; else each is `parse_event`'s to judge."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import chain
from math import isnan
from typing import Any, Final, TypeAlias

from .checks import MAX_AMOUNT, MAX_BATCH, MAX_INT, MAX_STATE, MAX_TIME, NAME_PLACES
from .events import (
    ACTIVITY,
    BEGIN,
    FINISH,
    FORGET,
    GAUGE,
    GAUGES,
    KINDS,
    MAX_COMMANDS_PER_SPAN,
    MAX_MODEL_ID,
    MAX_MODELS_PER_SPAN,
    MAX_NAME,
    MAX_REQUEST_ID,
    REGISTER,
    SPAN,
    STATE,
)

MIN_EVENTS: Final = 16
"""Fewer than these are looked at one by one in no more time."""

Column: TypeAlias = Sequence[Any]
"""One field of every event of a kind."""


def plain_names(events: Sequence[tuple[Any, ...]]) -> set[str] | None:
    """The names (see `NameBudget`) in ``events``, each a kind's number and then its fields, if
    `parse_event` would take all of them just as they are; None asks for a closer look at each.
    Of what is no plain value nothing but the type is looked at; its metaclass may still raise."""
    if len(events) < MIN_EVENTS or set(map(type, events)) != {tuple} or not all(events):
        return None
    if {type(event[0]) for event in events} != {int}:
        return None
    groups: defaultdict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for event in events:
        groups[event[0]].append(event)
    if not groups.keys() <= _CHECKS.keys():
        return None
    names: set[str] = set()
    for number, group in groups.items():
        kind = KINDS[number]
        if set(map(len, group)) != {1 + len(kind._fields)}:
            return None
        _, *columns = zip(*group, strict=True)
        if not _CHECKS[number](*columns):
            return None
        for place in NAME_PLACES.get(kind, ()):
            names.update(_given(columns[place]))
    return names


# Types by `type`: a subclass's methods could run anybody's code, and a bool is no number. They come
# before values, and what is true of an empty column is true of one that is None throughout.


def _given(column: Column) -> Column:
    return [value for value in column if value is not None]


def _times(column: Column) -> bool:
    return (
        set(map(type, column)) <= {float}
        and min(column, default=0.0) > -MAX_TIME
        and max(column, default=0.0) < MAX_TIME
        and not isnan(sum(column))  # a NaN is neither less nor more than what comes after it
    )


def _amounts(column: Column, types: set[type]) -> bool:
    return (
        set(map(type, column)) <= types
        and min(column, default=0) >= 0
        and max(column, default=0) < MAX_AMOUNT
        and not isnan(sum(column))
    )


def _integers(column: Column, limit: int) -> bool:
    return (
        set(map(type, column)) <= {int}
        and min(column, default=0) >= 0
        and max(column, default=0) <= limit
    )


def _texts(column: Column, limit: int) -> bool:
    return set(map(type, column)) <= {str} and _sized(column, 1, limit)


def _lists(column: Column, least: int, most: int) -> bool:
    return set(map(type, column)) <= {tuple} and _sized(column, least, most)


def _sized(column: Column, least: int, most: int) -> bool:
    lengths = set(map(len, column))
    return not lengths or (least <= min(lengths) and max(lengths) <= most)


def _items(column: Column) -> Column:
    return tuple(chain.from_iterable(column))


def _models(column: Column) -> bool:
    return _lists(column, 1, MAX_MODELS_PER_SPAN) and _texts(_items(column), MAX_MODEL_ID)


def _of_model(t: Column, model: Column) -> bool:
    return _times(t) and _texts(model, MAX_MODEL_ID)


def _begin(
    t: Column, model: Column, request_id: Column, seq: Column, kind: Column, weight: Column
) -> bool:
    return (
        _times(t)
        and _texts(model, MAX_MODEL_ID)
        and _texts(request_id, MAX_REQUEST_ID)
        and _integers(_given(seq), MAX_INT)
        and _texts(kind, MAX_NAME)
        and _amounts(_given(weight), {float})
    )


def _finish(t: Column, model: Column, request_id: Column) -> bool:
    return _times(t) and _texts(model, MAX_MODEL_ID) and _texts(request_id, MAX_REQUEST_ID)


def _span(
    models: Column,
    name: Column,
    lane: Column,
    t0: Column,
    t1: Column,
    request_ids: Column,
    seq_ids: Column,
    n: Column,
    ok: Column,
    tokens: Column,
) -> bool:
    request_ids, seq_ids, tokens = _given(request_ids), _given(seq_ids), _given(tokens)
    return (
        _models(models)
        and _texts(name, MAX_NAME)
        and _texts(lane, MAX_NAME)
        and _times(t0)
        and _times(t1)
        and _lists(request_ids, 0, MAX_COMMANDS_PER_SPAN)
        and _texts(_items(request_ids), MAX_REQUEST_ID)
        and _lists(seq_ids, 0, MAX_COMMANDS_PER_SPAN)
        and _integers(_items(seq_ids), MAX_INT)
        and _integers(_given(n), MAX_BATCH)
        and set(map(type, _given(ok))) <= {bool}
        and _lists(tokens, 0, MAX_COMMANDS_PER_SPAN)
        and _amounts(_items(tokens), {float, int})
    )


def _state(t: Column, models: Column, state: Column) -> bool:
    return _times(t) and _models(_given(models)) and _texts(state, MAX_STATE)


def _activity(t: Column, lane: Column, model: Column, request_id: Column, kind: Column) -> bool:
    return (
        _times(t)
        and _texts(lane, MAX_NAME)
        and _texts(_given(model), MAX_MODEL_ID)
        and _texts(_given(request_id), MAX_REQUEST_ID)
        and _texts(_given(kind), MAX_NAME)
    )


def _gauge(t: Column, name: Column) -> bool:
    return _times(t) and set(map(type, name)) <= {str} and set(name) <= set(GAUGES)


_CHECKS: Final[dict[int, Callable[..., bool]]] = {
    REGISTER: _of_model,
    FORGET: _of_model,
    BEGIN: _begin,
    FINISH: _finish,
    SPAN: _span,
    STATE: _state,
    ACTIVITY: _activity,
    GAUGE: _gauge,
}
