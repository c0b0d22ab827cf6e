"""The answers: frozen snapshots, and their JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from .delivery import Delivery
from .series import Series

AGGREGATE = "*"
"""The model id that stands for all models together."""
_PLACES = 6


@dataclass(frozen=True, slots=True)
class PhaseTiming:
    """One phase over an interval. Seconds; ``mean_batch`` is commands per backend execution."""

    count: int
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


@dataclass(frozen=True, slots=True)
class Timing:
    """One model's figures over its current interval, or (``*``) those of all models.

    ``uptime_s`` and ``gauges`` are seconds since the trainer's process started; ``uptime_s``
    is None while no trainer was heard.
    """

    model_id: str
    uptime_s: float | None
    phases: Mapping[str, PhaseTiming]
    gauges: Mapping[str, float]
    delivery: Delivery

    def to_json(self) -> dict[str, object]:
        """As the HTTP answer has it: plain types, floats rounded to 6 places, phases sorted."""
        return {
            "model_id": self.model_id,
            "uptime_s": _rounded(self.uptime_s),
            "phases": {name: _rounded(asdict(self.phases[name])) for name in sorted(self.phases)},
            "gauges": _rounded(dict(sorted(self.gauges.items()))),
            "delivery": asdict(self.delivery),
        }


@dataclass(frozen=True, slots=True)
class Health:
    """Whether a trainer is there. ``last_heard`` is Unix seconds, None if none ever was;
    ``producers`` counts the processes connected now."""

    connected: bool
    last_heard: float | None
    producers: int


def _rounded(value: object) -> object:
    if isinstance(value, float):
        return round(value, _PLACES)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return value
