"""What a command weighs within a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def tinker_tokens(payload: Any) -> float:
    """The tokens of a Tinker payload: the ``length`` of each ``model_input`` in ``data``.

    Takes the service's objects and the same as parsed JSON; a ``length`` that is a method is
    called. Raises whatever a payload of another shape leads to: the observer counts that, and
    the command weighs one.
    """
    return float(sum(_length(_get(datum, "model_input")) for datum in _get(payload, "data")))


def _get(holder: Any, name: str) -> Any:
    return holder[name] if isinstance(holder, Mapping) else getattr(holder, name)


def _length(model_input: Any) -> int:
    length = _get(model_input, "length")
    return int(length() if callable(length) else length)
