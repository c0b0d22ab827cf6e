"""The per-step reports of a training loop, added up: each covers the interval since the one before.
Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

PREFIX: Final = "lilo/"
STATS: Final = ("count", "total_s", "mean_s", "max_s", "mean_batch")

PARTS: Final = (
    "mine_s",
    "shared_batch_s",
    "neighbors_s",
    "overhead_s",
    "persist_s",
    "client_s",
)
"""Of a step: seconds that add up to its wall."""

Phases: TypeAlias = dict[str, dict[str, float]]
"""The figures (`STATS`) by phase name, such as ``forward_backward.execute``."""


def phases_of(metrics: Mapping[str, float]) -> Phases:
    """The phases in a report's flat metrics, such as ``lilo/forward_backward.execute.count``."""
    phases: Phases = {}
    for name, value in metrics.items():
        phase, _, stat = name.removeprefix(PREFIX).rpartition(".")
        if stat in STATS and f"{PREFIX}{phase}.count" in metrics:
            phases.setdefault(phase, {})[stat] = value
    return phases


def added(earlier: Phases, later: Phases) -> Phases:
    """Two intervals that follow each other, as one."""
    together = {**earlier, **later}
    for phase in earlier.keys() & later.keys():
        before, after = earlier[phase], later[phase]
        count = before["count"] + after["count"]
        batches = before["count"] * before["mean_batch"] + after["count"] * after["mean_batch"]
        total = before["total_s"] + after["total_s"]
        together[phase] = {
            "count": count,
            "total_s": total,
            "mean_s": total / count,
            "max_s": max(before["max_s"], after["max_s"]),
            "mean_batch": batches / count,
        }
    return together


def parts_of(metrics: Mapping[str, float]) -> dict[str, float]:
    """The parts of the step in a report's flat metrics, such as ``lilo/step.mine_s``."""
    return {part: metrics.get(f"{PREFIX}step.{part}", 0.0) for part in PARTS}


def parts_added(earlier: Mapping[str, float], later: Mapping[str, float]) -> dict[str, float]:
    """The parts of two intervals that follow each other."""
    return {part: earlier.get(part, 0.0) + later.get(part, 0.0) for part in PARTS}
