"""What reading a model's timing can end in.

    TimingError
    ├── InvalidCallError          an argument cannot work (also a ValueError)
    │   └── MissingBaseUrlError   nobody said where the control plane is
    ├── BadRequestError           the server understood the request and refused it: 400
    ├── UnauthorizedError         the API key is missing or wrong: 401, 403
    ├── UnknownModelError         the server, or the model's sidecar, knows no such model
    ├── UnavailableError          no connection, or 502 or 503
    ├── SlowAnswerError           no answer in time, or 504
    └── UnexpectedAnswerError     an answer that is none of ours

Messages carry no API key and no token.
"""

from __future__ import annotations


class TimingError(Exception):
    """The root of this package's errors."""


class InvalidCallError(TimingError, ValueError):
    """An argument cannot work, wherever it is sent."""


class MissingBaseUrlError(InvalidCallError):
    """Neither ``base_url`` nor ``TINKER_BASE_URL`` is there."""


class BadRequestError(TimingError):
    """The server refused the request; its message is in this one's."""


class UnauthorizedError(TimingError):
    """The API key is missing, wrong, or not allowed to read this model."""


class UnknownModelError(TimingError):
    """The server, or the model's sidecar, knows no such model, or there is no timing route."""


class UnavailableError(TimingError):
    """The control plane, or the model's sidecar behind it, cannot be reached."""


class SlowAnswerError(TimingError):
    """The control plane, or the model's sidecar behind it, did not answer in time."""


class UnexpectedAnswerError(TimingError):
    """The answer is no timing: too large, no JSON, of another shape, or an unknown status."""
