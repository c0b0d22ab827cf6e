"""The answers: frozen snapshots, and their JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from .account import StepSums
from .delivery import Delivery
from .series import Series

AGGREGATE = "*"
"""The model id that stands for all models together."""
_PLACES = 6


class PhaseTiming(NamedTuple):
    """One phase over an interval. Seconds; ``mean_batch`` is commands per backend execution."""

    count: int  # type: ignore[assignment] # in place of a tuple's own, which nobody calls
    total_s: float
    mean_s: float
    max_s: float
    mean_batch: float

    @classmethod
    def of(cls, series: Series) -> PhaseTiming:
        return cls(
            series.count,
            series.total,
            series.total / series.count,
            series.max,
            series.batch / series.count,
        )

    def to_json(self) -> dict[str, object]:
        return {
            "count": self.count,
            "total_s": round(self.total_s, _PLACES),
            "mean_s": round(self.mean_s, _PLACES),
            "max_s": round(self.max_s, _PLACES),
            "mean_batch": round(self.mean_batch, _PLACES),
        }


class WaitTiming(NamedTuple):
    """Where the queue waits of one kind went; seconds that add up to ``K.queue_wait.total_s``."""

    self_s: float
    """The lane ran the model's own work, or the model's own persistence held it up."""
    neighbors_s: float
    """The lane ran others' work only, or others' persistence held the command up."""
    overhead_s: float
    """The lane was idle."""
    unattributed_s: float
    """Further back than the lane's timeline reaches."""


class Step(NamedTuple):
    """Where a model's time went over its interval; the six parts add up to ``wall_s``.

    ``since`` and ``until`` are Unix seconds; ``until`` is the model's last event that settles
    its account, and what has happened since is in the next interval.
    """

    wall_s: float
    mine_s: float
    """Its share of the batches it was in."""
    shared_batch_s: float
    """The rest of those batches."""
    neighbors_s: float
    """It waited, and the lane ran others' work."""
    overhead_s: float
    """It waited, or a result of it was not handed out yet, and the lane was idle."""
    persist_s: float
    """Nothing queued or running, and something captured was being persisted."""
    client_s: float
    """Nothing of it was in the trainer."""
    since: float
    until: float

    @classmethod
    def of(cls, since: float, until: float, sums: StepSums) -> Step:
        return cls(until - since, *sums.to_tuple(), since, until)


_STEP_PARTS: Final = Step._fields[1:-2]


class LaneNow(NamedTuple):
    """What a lane is doing: which operation, for how many seconds by now, and whether with
    work of the model asked about (for the aggregate: of any)."""

    operation: str
    for_s: float
    mine: bool


@dataclass(frozen=True, slots=True)
class IntervalTiming:
    """Whose interval it is, and what it covers. Cursors are opaque to readers."""

    reader: str | None
    """None is all those who gave no name."""
    begin: str
    """The cursor where it begins."""
    cursor: str | None
    """To acknowledge it with; None if it was not ended by a reader with a name."""
    complete: bool
    """Whether all that the trainer reported over it is in the figures, and it follows the
    reader's last one without a hole."""
    final: bool
    """Whether the model was forgotten, so that there will be no more."""

    def to_json(self) -> dict[str, object]:
        return {
            "reader": self.reader,
            "from": self.begin,
            "cursor": self.cursor,
            "complete": self.complete,
            "final": self.final,
        }


@dataclass(frozen=True, slots=True)
class Timing:
    """One model's figures over a reader's interval, or (``*``) those of all models.

    ``uptime_s`` and ``gauges`` are seconds since the trainer's process started; ``uptime_s``
    is None while no trainer was heard.
    """

    model_id: str
    uptime_s: float | None
    phases: Mapping[str, PhaseTiming]
    waits: Mapping[str, WaitTiming]
    """By kind."""
    shares: Mapping[str, float]
    """By kind: the model's part, in seconds, of what the gpu lane ran of it (executions and
    captures); for the aggregate, all of it."""
    step: Step | None
    """None for the aggregate, and for a model nobody reported."""
    lanes: Mapping[str, LaneNow]
    """The lanes that work now."""
    gauges: Mapping[str, float]
    interval: IntervalTiming
    delivery: Delivery
    """Over the interval."""

    def to_json(self) -> dict[str, object]:
        """As the HTTP answer has it: plain types, floats rounded to 6 places, names sorted.
        Parts that add up to a total still do after rounding."""
        return {
            "model_id": self.model_id,
            "uptime_s": _rounded(self.uptime_s),
            "phases": {name: self.phases[name].to_json() for name in sorted(self.phases)},
            "waits": {
                kind: _parts_of(self.phases[f"{kind}.queue_wait"].total_s, WaitTiming._fields, wait)
                for kind, wait in sorted(self.waits.items())
            },
            "shares": _rounded(dict(sorted(self.shares.items()))),
            "step": None if self.step is None else _step_json(self.step),
            "lanes": {name: _rounded(lane._asdict()) for name, lane in sorted(self.lanes.items())},
            "gauges": _rounded(dict(sorted(self.gauges.items()))),
            "interval": self.interval.to_json(),
            "delivery": self.delivery._asdict(),
        }


def waits_of(phases: Mapping[str, Series]) -> dict[str, WaitTiming]:
    """The waits by kind, from the series of ``K.queue_wait``."""
    return {
        name.removesuffix(".queue_wait"): WaitTiming(*series.wait)
        for name, series in phases.items()
        if name.endswith(".queue_wait")
    }


def shares_of(phases: Mapping[str, Series]) -> dict[str, float]:
    """The shares by kind, from the series of ``K.execute`` and ``K.capture``."""
    shares: dict[str, float] = {}
    for name, series in phases.items():
        kind, _, what = name.rpartition(".")
        if what in ("execute", "capture"):
            shares[kind] = shares.get(kind, 0.0) + series.share
    return shares


@dataclass(frozen=True, slots=True)
class Health:
    """Whether a trainer is there, and what it does."""

    connected: bool
    last_heard: float | None
    """Unix seconds; None if no producer ever was."""
    producers: int
    """Processes connected now."""
    lanes: Mapping[str, LaneNow]
    """The lanes that work now: one that is in the same operation for long may be stuck."""
    faults: int
    """Events that a fault of the sidecar's own kept from being applied."""
    started: float | None
    """Unix seconds at which the newest trainer's process started; None if there was none."""
    gauges: Mapping[str, float]
    """Its milestones, in seconds since then."""

    def to_json(self, now: float) -> dict[str, object]:
        """The trainer and its lanes, as the HTTP answers have them at ``now``, in Unix seconds."""
        heard = self.last_heard
        return {
            "trainer": {
                "connected": self.connected,
                "last_heard_unix_s": _rounded(heard),
                "last_heard_age_s": None if heard is None else _rounded(max(0.0, now - heard)),
            },
            "lanes": {
                name: {"operation": lane.operation, "for_s": _rounded(lane.for_s)}
                for name, lane in sorted(self.lanes.items())
            },
        }


def _step_json(step: Step) -> dict[str, float]:
    wall, *parts, since, until = step
    named = _parts_of(wall, _STEP_PARTS, parts)
    return {"wall_s": round(wall, _PLACES), **named, "since": since, "until": until}


def _parts_of(total: float, names: Iterable[str], parts: Iterable[float]) -> dict[str, float]:
    return dict(zip(names, rounded_parts(total, parts), strict=True))


def rounded_parts(total: float, parts: Iterable[float]) -> list[float]:
    """The parts rounded, the largest one so that their sum is the rounded total."""
    rounded = [round(part, _PLACES) if part > 0.0 else 0.0 for part in parts]
    at = rounded.index(max(rounded))
    rounded[at] = 0.0
    rounded[at] = round(round(total, _PLACES) - sum(rounded), _PLACES)
    return rounded


def _rounded(value: object) -> object:
    if isinstance(value, float):
        return round(value, _PLACES)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return value
