"""Field checks shared by both ends: what passes here is what may cross the socket."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Final

from .events import (
    GAUGES,
    MAX_COMMANDS_PER_SPAN,
    MAX_MODEL_ID,
    MAX_MODELS_PER_SPAN,
    MAX_NAME,
    MAX_REQUEST_ID,
    Activity,
    Begin,
    Event,
    Finish,
    Forget,
    Gauge,
    Register,
    Span,
    State,
)

MAX_NAMES: Final = 256
"""Distinct span names, kinds and lanes of one producer. Phases are a fixed vocabulary of
the engine; a producer with more is putting data (an id, a path) where a name belongs."""

MAX_INT: Final = 2**53 - 1
"""What JSON and floats hold exactly."""
MAX_BATCH: Final = 2**32 - 1
"""Commands of a batch: sums of batch sizes stay within 64 bits."""
MAX_TIME: Final = 1e11
"""Unix seconds, year 5138: sums of times stay finite."""

MAX_AMOUNT: Final = 1e15
"""Weights and token counts stay below."""
MAX_STATE: Final = MAX_NAME + len("executing:")

NAME_PLACES: Final[dict[type[Event], tuple[int, ...]]] = {
    Span: (Span._fields.index("name"), Span._fields.index("lane")),
    Begin: (Begin._fields.index("kind"),),
    Activity: (Activity._fields.index("lane"), Activity._fields.index("kind")),
}
"""Which fields of an event are names."""


class ProtocolError(Exception):
    """A message breaks the format. ``code`` is a short stable word for counting."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class NameBudget:
    """Refuses a producer's names once it has used MAX_NAMES different ones."""

    def __init__(self) -> None:
        self._seen: set[object] = {None}

    def spend(self, event: Event) -> None:
        """Raises ProtocolError for an event whose names go over the budget; names of an
        event that passes are remembered."""
        seen = self._seen
        for place in NAME_PLACES.get(type(event), ()):
            if event[place] not in seen:
                self._spend(event)
                return

    def admits(self, names: Set[object]) -> bool:
        """Whether all of these together stay within the budget; if so, they are remembered."""
        if not names <= self._seen:
            if len(self._seen | names) > MAX_NAMES + 1:  # None is none
                return False
            self._seen |= names
        return True

    def _spend(self, event: Event) -> None:
        if not self.admits({event[place] for place in NAME_PLACES[type(event)]}):
            raise ProtocolError(
                "names",
                f"more than {MAX_NAMES} different span names, kinds and lanes; "
                "a name must not carry an id or other data",
            )


def parse_event(kind: type[Event], fields: Sequence[object]) -> Event:
    """Check the fields of one event, in the order of its record class, and build it.

    Raises ProtocolError that names the field. Numbers must be Python's own: converting a
    device tensor, say, would synchronise the device.
    """
    expected = len(kind._fields)
    if len(fields) != expected:
        raise ProtocolError(
            "event", f"{kind.__name__.lower()} has {expected} fields, not {len(fields)}"
        )
    return _PARSERS[kind](*fields)


def text(value: object, limit: int, what: str) -> str:
    if type(value) is not str:
        raise ProtocolError("field", f"{what} is a {type(value).__name__}, not a string")
    if not 0 < len(value) <= limit:
        raise ProtocolError("field", f"{what} has {len(value)} characters; allowed: 1 to {limit}")
    return value


def time(value: object, what: str) -> float:
    if type(value) is not float and type(value) is not int:
        raise ProtocolError("field", f"{what} is a {type(value).__name__}, not Unix seconds")
    if not -MAX_TIME < value < MAX_TIME:  # false for NaN, too
        raise ProtocolError("field", f"{what} is not a finite number of Unix seconds")
    return float(value)


def integer(value: object, what: str, limit: int = MAX_INT) -> int:
    if type(value) is not int:
        raise ProtocolError("field", f"{what} is a {type(value).__name__}, not an integer")
    if not 0 <= value <= limit:
        raise ProtocolError("field", f"{what} is outside 0 to {limit}")
    return value


def amount(value: object, what: str) -> float:
    if type(value) is not float and type(value) is not int:
        raise ProtocolError("field", f"{what} is a {type(value).__name__}, not a number")
    if not 0 <= value < MAX_AMOUNT:
        raise ProtocolError("field", f"{what} is outside 0 to 1e15")
    return float(value)


def _models(value: object) -> tuple[str, ...]:
    if type(value) is not tuple or not 0 < len(value) <= MAX_MODELS_PER_SPAN:
        raise ProtocolError("field", f"models is not a list of 1 to {MAX_MODELS_PER_SPAN} ids")
    for model in value:
        text(model, MAX_MODEL_ID, "a model id")
    return value


def _each(value: object, check: Callable[[object], object], what: str) -> None:
    if type(value) is not tuple or len(value) > MAX_COMMANDS_PER_SPAN:
        raise ProtocolError("field", f"{what} is not a list of up to {MAX_COMMANDS_PER_SPAN}")
    for item in value:
        check(item)


def _parse_register(t: object, model: object) -> Event:
    return Register(time(t, "t"), text(model, MAX_MODEL_ID, "model"))


def _parse_forget(t: object, model: object) -> Event:
    return Forget(time(t, "t"), text(model, MAX_MODEL_ID, "model"))


def _parse_begin(
    t: object, model: object, request_id: object, seq: object, kind: object, weight: object
) -> Event:
    return Begin(
        time(t, "t"),
        text(model, MAX_MODEL_ID, "model_id"),
        text(request_id, MAX_REQUEST_ID, "request_id"),
        None if seq is None else integer(seq, "seq_id"),
        text(kind, MAX_NAME, "kind"),
        None if weight is None else amount(weight, "weight"),
    )


def _parse_finish(t: object, model: object, request_id: object) -> Event:
    return Finish(
        time(t, "t"),
        text(model, MAX_MODEL_ID, "model_id"),
        text(request_id, MAX_REQUEST_ID, "request_id"),
    )


def _parse_span(
    models: object,
    name: object,
    lane: object,
    t0: object,
    t1: object,
    request_ids: object,
    seq_ids: object,
    n: object,
    ok: object,
    tokens: object,
) -> Event:
    if request_ids is not None:
        _each(request_ids, lambda item: text(item, MAX_REQUEST_ID, "a request id"), "request_ids")
    if seq_ids is not None:
        _each(seq_ids, lambda item: integer(item, "a seq id"), "seq_ids")
    if tokens is not None:
        _each(tokens, lambda item: amount(item, "a token count"), "tokens")
    if ok is not None and type(ok) is not bool:
        raise ProtocolError("field", f"ok is a {type(ok).__name__}, not a boolean")
    return Span(
        _models(models),
        text(name, MAX_NAME, "name"),
        text(lane, MAX_NAME, "lane"),
        time(t0, "t0"),
        time(t1, "t1"),
        request_ids,  # type: ignore[arg-type]  # checked item by item above
        seq_ids,  # type: ignore[arg-type]
        None if n is None else integer(n, "n", MAX_BATCH),
        ok,
        tokens,  # type: ignore[arg-type]
    )


def _parse_state(t: object, models: object, state: object) -> Event:
    return State(
        time(t, "t"),
        None if models is None else _models(models),
        text(state, MAX_STATE, "state"),
    )


def _parse_activity(
    t: object, lane: object, model: object, request_id: object, kind: object
) -> Event:
    return Activity(
        time(t, "t"),
        text(lane, MAX_NAME, "lane"),
        None if model is None else text(model, MAX_MODEL_ID, "model_id"),
        None if request_id is None else text(request_id, MAX_REQUEST_ID, "request_id"),
        None if kind is None else text(kind, MAX_NAME, "kind"),
    )


def _parse_gauge(t: object, name: object) -> Event:
    if type(name) is not str or name not in GAUGES:
        raise ProtocolError("field", "a gauge is backend_ready or serving_ready")
    return Gauge(time(t, "t"), name)


_PARSERS: Final[dict[type[Event], Callable[..., Event]]] = {
    Register: _parse_register,
    Forget: _parse_forget,
    Begin: _parse_begin,
    Finish: _parse_finish,
    Span: _parse_span,
    State: _parse_state,
    Activity: _parse_activity,
    Gauge: _parse_gauge,
}
