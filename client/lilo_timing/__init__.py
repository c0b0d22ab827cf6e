"""Where each training step's time went: for training loops, and for control planes.

In a training loop, once per step:

    from lilo_timing import log_critical_path

    log_critical_path(model_id, step=step)

In a control plane:

    from lilo_timing import SidecarEndpoint, timing_routes

    async def engine_for(model_id: str) -> SidecarEndpoint: ...

    app = Starlette(routes=[*timing_routes(engine_for), ...])

Importing this loads nothing but the standard library, and for a training loop nothing of what is
for control planes; httpx comes with the first request, and wandb is used where the caller has
imported it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from ._critical_path import (
    critical_path_metrics,
    flush_critical_path,
    log_critical_path,
    reporting_statistics,
)
from ._statistics import ReportingStatistics
from .errors import (
    BadRequestError,
    InvalidCallError,
    MissingBaseUrlError,
    SlowAnswerError,
    TimingError,
    UnauthorizedError,
    UnavailableError,
    UnexpectedAnswerError,
    UnknownModelError,
)

if TYPE_CHECKING:
    from ._endpoint import SidecarEndpoint
    from ._placement import least_waiting
    from ._poller import TimingPoller, TrainerTiming
    from ._routes import timing_routes

_OF_CONTROL_PLANES = {
    "SidecarEndpoint": "_endpoint",
    "TimingPoller": "_poller",
    "TrainerTiming": "_poller",
    "least_waiting": "_placement",
    "timing_routes": "_routes",
}
"""Where each is, to be imported when it is first asked for."""

__all__ = [
    "BadRequestError",
    "InvalidCallError",
    "MissingBaseUrlError",
    "ReportingStatistics",
    "SidecarEndpoint",
    "SlowAnswerError",
    "TimingError",
    "TimingPoller",
    "TrainerTiming",
    "UnauthorizedError",
    "UnavailableError",
    "UnexpectedAnswerError",
    "UnknownModelError",
    "critical_path_metrics",
    "flush_critical_path",
    "least_waiting",
    "log_critical_path",
    "reporting_statistics",
    "timing_routes",
]


def __getattr__(name: str) -> object:
    if name not in _OF_CONTROL_PLANES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_OF_CONTROL_PLANES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
