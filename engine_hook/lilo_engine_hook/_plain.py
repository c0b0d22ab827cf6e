"""Python's own types from what engines really pass: enums, numpy scalars, string subclasses."""

from __future__ import annotations

import enum
import numbers

_PLAIN = frozenset({str, int, float, bool, type(None)})


def plain(value: object) -> object:
    """``value`` as a plain str, int, float, bool, None or tuple where it is one by its type;
    anything else unchanged, to be refused by the field checks.

    A device tensor is none of these on purpose: converting it would synchronise the device.
    """
    if type(value) in _PLAIN:
        return value
    if isinstance(value, (tuple, list)):
        return tuple(plain(item) for item in value)
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    return value
