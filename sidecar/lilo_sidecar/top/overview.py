"""What `GET /api/v1/overview` says, as typed records. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ..asking import AskError, Trouble
from ..core.delivery import Delivery
from ..core.history import MAX_MODELS_SHOWN
from ..core.lanes import MAX_LANES
from ..core.recent_spans import MAX_SPANS

WINDOW: Final = 120.0
"""Seconds that lanes and activity are shown for: in a terminal of 80 columns, a cell of a lane has
3 s, about a step."""
_MOST: Final = 1e18
"""Seconds, since 1970 or of work: far beyond any sidecar's, and what is computed from such ones is
finite."""


class Parts(NamedTuple):
    """Where a model's time went, in seconds; they add up to the interval."""

    mine: float
    shared_batch: float
    neighbors: float
    overhead: float
    persist: float
    client: float

    @property
    def total(self) -> float:
        return sum(self)


class Work(NamedTuple):
    """One span of a lane, from ``start`` to ``end`` (Unix seconds)."""

    start: float
    end: float
    operation: str
    models: tuple[str, ...]
    """Empty while it still runs: whose it is, is heard at its end."""


@dataclass(frozen=True, slots=True)
class Lane:
    """One lane, now and in the last minutes."""

    name: str
    operation: str | None
    """What it does now; None is nothing."""
    for_s: float
    """Seconds in it by now."""
    known_from: float
    """Unix seconds that `work` reaches back to."""
    work: tuple[Work, ...]

    def busy(self, start: float, end: float) -> float:
        """The share of that time in which the lane worked, 0 to 1."""
        worked = sum(overlap(each, start, end) for each in self.work)
        return min(1.0, worked / (end - start)) if end > start else 0.0


@dataclass(frozen=True, slots=True)
class Model:
    """One model."""

    model_id: str
    queued: int
    running: int
    batch_factor: float | None
    """Commands for each execution it was in; None before the first."""
    since: float
    until: float
    """Unix seconds that `parts` cover: the last interval that is known."""
    parts: Parts
    recent_s: float
    """Seconds of the lane that were its own within the last WINDOW."""


@dataclass(frozen=True, slots=True)
class Overview:
    """One moment of a sidecar."""

    now: float
    version: str
    uptime_s: float
    connected: bool
    last_heard_age_s: float | None
    """None if no trainer ever was heard."""
    lanes: tuple[Lane, ...]
    """The GPU's first, then by name."""
    models: tuple[Model, ...]
    """Who has used the lane most of late comes first, then by name."""
    models_left_out: int
    delivery: Delivery
    journal_reason: str | None
    """Why the journal is off; None while it is written."""
    faults: int


def overview_of(content: Mapping[str, Any]) -> Overview:
    """Read an answer. Raises `AskError` for one that is no sidecar's."""
    try:
        return _overview(content)
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError):
        raise AskError(Trouble.FOREIGN, "its overview is not a sidecar's") from None


def overlap(work: Work, start: float, end: float) -> float:
    """Seconds of the work that lie between."""
    return max(0.0, min(work.end, end) - max(work.start, start))


def _overview(content: Mapping[str, Any]) -> Overview:
    now, trainer, journal = _seconds(content["now"]), content["trainer"], content["journal"]
    age = trainer["last_heard_age_s"]
    names = list(dict.fromkeys([*content["lanes"], *content["spans"]]))[:MAX_LANES]
    models = [_model(model, now) for model in content["models"][:MAX_MODELS_SHOWN]]
    return Overview(
        now=now,
        version=str(content["version"]),
        uptime_s=_seconds(content["uptime_s"]),
        connected=bool(trainer["connected"]),
        last_heard_age_s=None if age is None else _seconds(age),
        lanes=tuple(
            _lane(name, content, now) for name in sorted(names, key=lambda n: (n != "gpu", n))
        ),
        models=tuple(sorted(models, key=lambda model: (-model.recent_s, model.model_id))),
        models_left_out=int(content["models_left_out"]),
        delivery=Delivery(**{name: int(content["delivery"][name]) for name in Delivery._fields}),
        journal_reason=None if journal["writing"] else str(journal["reason"]),
        faults=int(content["faults"]),
    )


def _lane(name: str, content: Mapping[str, Any], now: float) -> Lane:
    here = content["lanes"].get(name)
    operation, for_s = (None, 0.0) if here is None else (str(here["operation"]), here["for_s"])
    spans = content["spans"].get(name, ())
    work = [
        Work(_seconds(start), _seconds(end), str(what), tuple(map(str, models)))
        for start, end, what, models in spans[-MAX_SPANS:]
    ]
    if operation is not None:
        work.append(Work(now - _seconds(for_s), now, operation, ()))
    known_from = _seconds(content["spans_from"].get(name, now))
    return Lane(name, operation, _seconds(for_s), known_from, tuple(work))


def _model(content: Mapping[str, Any], now: float) -> Model:
    executions, intervals = int(content["executions"]), content["intervals"]
    if intervals:
        until, parts = _seconds(intervals[-1][0]), _parts(intervals[-1][1:])
    else:
        until = _seconds(content["until"])
        parts = _parts([content["step"][f"{name}_s"] for name in Parts._fields])
    recent = [_parts(each[1:]).mine for each in intervals if each[0] > now - WINDOW]
    return Model(
        model_id=str(content["model_id"]),
        queued=int(content["queued"]),
        running=int(content["running"]),
        batch_factor=int(content["commands"]) / executions if executions else None,
        since=until - parts.total,
        until=until,
        parts=parts,
        recent_s=sum(recent),
    )


def _parts(seconds: Sequence[Any]) -> Parts:
    return Parts(*(max(0.0, _seconds(each)) for each in seconds))


def _seconds(value: Any) -> float:
    """Raises ValueError for what is no such number; JSON may hold the text of one that is none."""
    seconds = float(value)
    if not -_MOST <= seconds <= _MOST:  # false for NaN, too
        raise ValueError("beyond all times")
    return seconds
