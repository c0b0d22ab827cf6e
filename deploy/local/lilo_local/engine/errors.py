"""What the engine refuses, each with the HTTP status that says so.

EngineError
 +- InvalidOperationError    the command can never run
 +- UnknownModelError        no such model here, or it is being unloaded
 +- UnknownRequestError      no such request, or its result is no longer kept
 +- ConflictError            it contradicts what is there already
 +- BusyError                a bound is reached; later it may go
"""

from __future__ import annotations

from typing import ClassVar


class EngineError(Exception):
    """A refused call; the message says why and what to do."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal"


class InvalidOperationError(EngineError):
    status = 400
    code = "invalid_operation"


class UnknownModelError(EngineError):
    status = 404
    code = "unknown_model"


class UnknownRequestError(EngineError):
    status = 404
    code = "unknown_request"


class ConflictError(EngineError):
    status = 409
    code = "conflict"


class BusyError(EngineError):
    status = 429
    code = "busy"
