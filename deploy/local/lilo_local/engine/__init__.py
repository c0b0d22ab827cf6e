"""The trainer's engine: commands of many models in, one serialized lane on the model, results in
futures. Its only timing code is the calls to its observer."""

from .backend import Backend, BackendFailureError, HttpBackend
from .engine import Engine
from .errors import EngineError
from .futures import Future
from .operations import Kind, Limits, Operation

__all__ = [
    "Backend",
    "BackendFailureError",
    "Engine",
    "EngineError",
    "Future",
    "HttpBackend",
    "Kind",
    "Limits",
    "Operation",
]
