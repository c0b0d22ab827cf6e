"""What the tenants say while they train: a few lines for the reader, and the sums for the end."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rich.console import Console

from .table import Section, duration

SECONDS_PER_LINE: Final = 3.0
"""Between two lines of one tenant: each reports several times a second, and a reader cannot."""
_PREFIX: Final = "lilo/"
_STATS: Final = ("count", "total_s", "mean_s", "max_s", "mean_batch")


@dataclass(slots=True)
class _Tenant:
    model_id: str = ""
    steps: int = 0
    losses: list[float] = field(default_factory=list)
    reports: int = 0
    totals: dict[str, float] = field(default_factory=dict)
    """Of all its reports: their metrics merged."""
    shown: float = 0.0

    def summary(self) -> str:
        """Did it learn?"""
        if not self.losses:
            return "no step"
        return (
            f"{self.steps} steps, loss {self.losses[0]:.2f} to {self.losses[-1]:.2f}, "
            f"{self.reports} timing reports"
        )


class Progress:
    """Hears every tenant's events; shows some of them."""

    def __init__(self, console: Console, tenants: Iterable[str]) -> None:
        self._console = console
        self._tenants = {name: _Tenant() for name in tenants}
        self._began = time.monotonic()
        self._width = max(len(name) for name in self._tenants)

    def tell(self, source: str, event: Mapping[str, Any]) -> None:
        """A line that a tenant printed."""
        tenant = self._tenants.get(source)
        if tenant is None:
            return
        match event.get("event"):
            case "tenant_started":
                tenant.model_id = event["model_id"]
            case "tenant_step":
                tenant.steps = event["step"]
                tenant.losses.append(event["loss"])
            case "lilo_critical_path":
                tenant.reports += 1
                tenant.totals = merged(tenant.totals, event["metrics"])
                self._show(source, tenant, event["metrics"])

    def sections(self) -> list[Section]:
        """The table's sections, one for each tenant."""
        return [Section(name, phases_of(tenant.totals)) for name, tenant in self._tenants.items()]

    def summary(self) -> None:
        """A line for each tenant: did it learn?"""
        for name, tenant in self._tenants.items():
            self._console.print(f"{name:{self._width}}  {tenant.summary()}")

    def to_json(self) -> dict[str, Any]:
        """The table's figures for a program."""
        return {
            name: {
                "model_id": tenant.model_id,
                "steps": tenant.steps,
                "losses": tenant.losses,
                "reports": tenant.reports,
                "phases": phases_of(tenant.totals),
            }
            for name, tenant in self._tenants.items()
        }

    def _show(self, name: str, tenant: _Tenant, metrics: Mapping[str, float]) -> None:
        now = time.monotonic()
        execute = metrics.get("lilo/forward_backward.execute.mean_s")
        wait = metrics.get("lilo/forward_backward.queue_wait.mean_s")
        if now - tenant.shown < SECONDS_PER_LINE or execute is None or wait is None:
            return
        tenant.shown = now
        batch = metrics["lilo/forward_backward.execute.mean_batch"]
        self._console.print(
            f"{now - self._began:5.1f} s  {name:{self._width}}  step {tenant.steps:4d}  "
            f"loss {tenant.losses[-1]:.2f}  waited {duration(wait)}, ran {duration(execute)}, "
            f"batch of {batch:.1f}"
        )


def phases_of(metrics: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """The phases of a report's flat metrics, with their figures."""
    phases: dict[str, dict[str, float]] = {}
    for name, value in metrics.items():
        phase, _, stat = name.removeprefix(_PREFIX).rpartition(".")
        if stat in _STATS and f"{_PREFIX}{phase}.count" in metrics:
            phases.setdefault(phase, {})[stat] = value
    return phases


def merged(earlier: Mapping[str, float], later: Mapping[str, float]) -> dict[str, float]:
    """TEMP"""
    out = {**earlier, **later}
    for name, value in later.items():
        stem, _, stat = name.rpartition(".")
        if name in earlier and stat in ("count", "total_s"):
            out[name] = earlier[name] + value
        elif name in earlier and stat == "max_s":
            out[name] = max(earlier[name], value)
    for name in later:
        stem, _, stat = name.rpartition(".")
        if stat == "count" and name in earlier:
            out[stem + ".mean_s"] = out[stem + ".total_s"] / out[name]
            b = stem + ".mean_batch"
            out[b] = (earlier[b] * earlier[name] + later[b] * later[name]) / out[name]
    return out
