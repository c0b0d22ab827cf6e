"""Python's own types from what engines really pass: enums, numpy scalars, their own lists."""

from __future__ import annotations

import enum
import numbers

from . import wire

_PLAIN = frozenset({str, int, float, bool, type(None)})


def plain(value: object) -> object:
    """``value`` as a plain str, int, float, bool, None, or a tuple of such, where it is one by
    its type; anything else unchanged, to be refused by the field checks. A list within a list
    is left alone: events have none, and a deep one would take for ever.

    A device tensor is none of these on purpose: converting it would synchronise the device.
    """
    if type(value) in _PLAIN:
        return value
    if isinstance(value, (tuple, list)):
        return tuple(_scalar(item) for item in value)
    return _scalar(value)


def _scalar(value: object) -> object:
    if type(value) in _PLAIN:
        return value
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        return float(value)
    return value


def as_models(model: object) -> tuple[object, ...]:
    """One model's id, or several ids, as they are now."""
    return (model,) if isinstance(model, str) else copied(model)


def copied(values: object) -> tuple[object, ...]:
    """A list as it is now: the engine may go on changing its own. Raises TypeError for anything
    that may not end, ValueError for more items than an event may have."""
    if not isinstance(values, (list, tuple)):
        raise TypeError(f"expected a list or a tuple, not {type(values).__name__}")
    if len(values) > wire.MAX_COMMANDS_PER_SPAN:
        raise ValueError(f"{len(values)} items; at most {wire.MAX_COMMANDS_PER_SPAN} are allowed")
    return tuple(values)
