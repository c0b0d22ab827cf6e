"""The events a producer reports, as frozen typed records, and the bounds of their fields."""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

MAX_MODELS_PER_SPAN: Final = 256
MAX_COMMANDS_PER_SPAN: Final = 1024
MAX_MODEL_ID: Final = 256
"""Characters."""
MAX_REQUEST_ID: Final = MAX_MODEL_ID + 64
"""Characters: a model id, a colon and a sequence number, with room for other schemes."""
MAX_NAME: Final = 80
"""Characters of a kind, span name, lane, state, boot id or gauge name."""
GAUGES: Final = ("backend_ready", "serving_ready")


class Register(NamedTuple):
    """A model came into being at ``t`` (Unix seconds, the hook's clock)."""

    t: float
    model: str


class Forget(NamedTuple):
    """A model is gone: everything held for it can go too."""

    t: float
    model: str


class Begin(NamedTuple):
    """A command was submitted at ``t``. ``seq`` is its number within the model;
    ``weight`` its share weight (tokens), or None for one."""

    t: float
    model: str
    request_id: str
    seq: int | None
    kind: str
    weight: float | None


class Finish(NamedTuple):
    """A command is over, however it ended. The engine's word for how stays in the trainer: it
    may be the text of an error."""

    t: float
    model: str
    request_id: str


class Span(NamedTuple):
    """A lane worked from ``t0`` to ``t1`` (Unix seconds) for ``models``.

    ``request_ids`` names the commands in it; without it ``seq_ids`` does, where there is
    just one model. ``n`` is the number of commands coalesced, ``ok`` False after a failure,
    ``tokens`` one weight per request id.
    """

    models: tuple[str, ...]
    name: str
    lane: str
    t0: float
    t1: float
    request_ids: tuple[str, ...] | None
    seq_ids: tuple[int, ...] | None
    n: int | None
    ok: bool | None
    tokens: tuple[float, ...] | None


class State(NamedTuple):
    """The gpu lane's word for what it does since ``t``: ``executing:<name>`` or ``idle``.
    ``models`` is None when the state speaks of all of them."""

    t: float
    models: tuple[str, ...] | None
    state: str


class Activity(NamedTuple):
    """A lane took up a command at ``t``, or (all None) put its work down."""

    t: float
    lane: str
    model: str | None
    request_id: str | None
    kind: str | None


class Gauge(NamedTuple):
    """A start-up milestone was reached at ``t``: ``backend_ready`` or ``serving_ready``."""

    t: float
    name: str


Event: TypeAlias = Register | Forget | Begin | Finish | Span | State | Activity | Gauge

REGISTER: Final = 1
FORGET: Final = 2
BEGIN: Final = 3
FINISH: Final = 4
SPAN: Final = 5
STATE: Final = 6
ACTIVITY: Final = 7
GAUGE: Final = 8

KINDS: Final[dict[int, type[Event]]] = {
    REGISTER: Register,
    FORGET: Forget,
    BEGIN: Begin,
    FINISH: Finish,
    SPAN: Span,
    STATE: State,
    ACTIVITY: Activity,
    GAUGE: Gauge,
}
"""By the number that an event begins with on the wire."""
