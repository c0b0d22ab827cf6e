"""Events from fields that are plainly right, at a fraction of what it costs to say what is wrong
with them. Nearly all are; the others are `parse_event`'s to judge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from .checks import MAX_BATCH, MAX_INT, MAX_TIME, parse_event
from .events import (
    MAX_COMMANDS_PER_SPAN,
    MAX_MODEL_ID,
    MAX_MODELS_PER_SPAN,
    MAX_NAME,
    MAX_REQUEST_ID,
    Begin,
    Event,
    Finish,
    Forget,
    Register,
    Span,
    State,
)


def make_event(kind: type[Event], fields: tuple[Any, ...]) -> Event:
    """The event of these fields. Raises ProtocolError that names the field that is wrong."""
    return plain_event(kind, fields) or parse_event(kind, fields)


def plain_event(kind: type[Event], fields: tuple[Any, ...]) -> Event | None:
    """The event of these fields, if they are plainly right; None asks for a closer look."""
    check = _CHECKS.get(kind)
    if check is None or len(fields) != len(kind._fields) or not check(*fields):
        return None
    event: Event = tuple.__new__(kind, fields)  # what its `_make` does, in half the time
    return event


# Types by `is`: a subclass's methods could run anybody's code, and a bool is no number.


def _of_model(t: Any, model: Any) -> bool:
    return (
        type(t) is float
        and -MAX_TIME < t < MAX_TIME
        and type(model) is str
        and 0 < len(model) <= MAX_MODEL_ID
    )


def _begin(t: Any, model: Any, request_id: Any, seq: Any, kind: Any, weight: Any) -> bool:
    return (
        type(t) is float
        and -MAX_TIME < t < MAX_TIME
        and type(model) is str
        and 0 < len(model) <= MAX_MODEL_ID
        and type(request_id) is str
        and 0 < len(request_id) <= MAX_REQUEST_ID
        and (seq is None or (type(seq) is int and 0 <= seq <= MAX_INT))
        and type(kind) is str
        and 0 < len(kind) <= MAX_NAME
        and (weight is None or (type(weight) is float and 0 <= weight < 1e15))
    )


def _finish(t: Any, model: Any, request_id: Any) -> bool:
    return (
        type(t) is float
        and -MAX_TIME < t < MAX_TIME
        and type(model) is str
        and 0 < len(model) <= MAX_MODEL_ID
        and type(request_id) is str
        and 0 < len(request_id) <= MAX_REQUEST_ID
    )


def _span(
    models: Any,
    name: Any,
    lane: Any,
    t0: Any,
    t1: Any,
    request_ids: Any,
    seq_ids: Any,
    n: Any,
    ok: Any,
    tokens: Any,
) -> bool:
    if not (
        _are_ids(models, 1, MAX_MODELS_PER_SPAN, MAX_MODEL_ID)
        and type(name) is str
        and 0 < len(name) <= MAX_NAME
        and type(lane) is str
        and 0 < len(lane) <= MAX_NAME
        and type(t0) is float
        and -MAX_TIME < t0 < MAX_TIME
        and type(t1) is float
        and -MAX_TIME < t1 < MAX_TIME
        and seq_ids is None
        and (n is None or (type(n) is int and 0 <= n <= MAX_BATCH))
        and (ok is None or ok is True or ok is False)
        and tokens is None
    ):
        return False
    return request_ids is None or _are_ids(request_ids, 0, MAX_COMMANDS_PER_SPAN, MAX_REQUEST_ID)


def _state(t: Any, models: Any, state: Any) -> bool:
    return (
        type(t) is float
        and -MAX_TIME < t < MAX_TIME
        and type(state) is str
        and 0 < len(state) <= MAX_NAME
        and (models is None or _are_ids(models, 1, MAX_MODELS_PER_SPAN, MAX_MODEL_ID))
    )


def _are_ids(values: Any, least: int, most: int, limit: int) -> bool:
    if type(values) is not tuple or not least <= len(values) <= most:
        return False
    for value in values:  # noqa: SIM110 - a generator costs as much again
        if type(value) is not str or not 0 < len(value) <= limit:
            return False
    return True


_CHECKS: Final[dict[type[Event], Callable[..., bool]]] = {
    Register: _of_model,
    Forget: _of_model,
    Begin: _begin,
    Finish: _finish,
    Span: _span,
    State: _state,
}
