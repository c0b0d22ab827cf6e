"""Where each training step's time went: for training loops, and for control planes.

In a training loop, once per step:

    from lilo_timing import log_critical_path

    log_critical_path(model_id, step=step)

In a control plane:

    from lilo_timing import SidecarEndpoint, timing_routes

    async def engine_for(model_id: str) -> SidecarEndpoint: ...

    app = Starlette(routes=[*timing_routes(engine_for), ...])

Importing this loads nothing but the standard library; httpx comes with the first request, and
wandb is used where the caller has imported it.
"""

from ._critical_path import (
    critical_path_metrics,
    flush_critical_path,
    log_critical_path,
    reporting_statistics,
)
from ._endpoint import SidecarEndpoint
from ._placement import least_waiting
from ._poller import TimingPoller, TrainerTiming
from ._routes import timing_routes
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
