"""What the tenants say while they train: a few lines for the reader, and the sums for the end."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rich.console import Console

from .table import Section, duration
from .totals import Phases, added, parts_added, parts_of, phases_of

SECONDS_PER_LINE: Final = 3.0
"""Between two lines of one tenant: each reports several times a second, and a reader cannot."""


@dataclass(slots=True)
class _Tenant:
    model_id: str = ""
    steps: int = 0
    losses: list[float] = field(default_factory=list)
    reports: int = 0
    phases: Phases = field(default_factory=dict)
    """All its reports together."""
    parts: dict[str, float] = field(default_factory=dict)
    """Where all of its time went."""
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
                phases = phases_of(event["metrics"])
                tenant.phases = added(tenant.phases, phases)
                tenant.parts = parts_added(tenant.parts, parts_of(event["metrics"]))
                self._show(source, tenant, phases)

    def sections(self) -> list[Section]:
        """The table's sections, one for each tenant."""
        return [Section(name, tenant.phases) for name, tenant in self._tenants.items()]

    def steps(self) -> dict[str, dict[str, float]]:
        """The parts of each tenant's time."""
        return {name: tenant.parts for name, tenant in self._tenants.items()}

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
                "phases": tenant.phases,
                "parts": tenant.parts,
            }
            for name, tenant in self._tenants.items()
        }

    def _show(self, name: str, tenant: _Tenant, phases: Phases) -> None:
        now = time.monotonic()
        waited = phases.get("forward_backward.queue_wait")
        ran = phases.get("forward_backward.execute")
        if waited is None or ran is None or now - tenant.shown < SECONDS_PER_LINE:
            return
        tenant.shown = now
        self._console.print(
            f"{now - self._began:5.1f} s  {name:{self._width}}  step {tenant.steps:3d}  "
            f"loss {tenant.losses[-1]:.2f}  waited {duration(waited['mean_s'])}, "
            f"ran {duration(ran['mean_s'])}, batch {ran['mean_batch']:.1f}"
        )
