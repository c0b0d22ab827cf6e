"""What a command weighs within a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def tinker_tokens(payload: Any) -> float:
    """The tokens of a Tinker payload: the ``length`` of each ``model_input`` in ``data``. One
    for a payload without ``data``, such as an optimizer step's.

    Takes the service's objects and the same as parsed JSON; a ``length`` that is a method is
    called. Raises whatever data of another shape leads to: the observer counts that, and the
    command weighs one.
    """
    data = _get(payload, "data")
    if data is None:
        return 1.0
    return float(sum(_length(_get(datum, "model_input")) for datum in data))


def _get(holder: Any, name: str) -> Any:
    return holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)


def _length(model_input: Any) -> int:
    length = _get(model_input, "length")
    return int(length() if callable(length) else length)
