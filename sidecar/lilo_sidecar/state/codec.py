"""The core's objects as msgpack, and back: for snapshots.

Every value that is not plain is an array that begins with a tag. An object is written where it
is met first, and referred to by its number from then on, so that what was one stays one. Nothing
can come out but instances of the classes that are listed, made without running any code of
theirs; unlike with pickle, no input makes it allocate more than a few times its own length.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence, Set
from enum import Enum
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import Any, Final

import msgpack

_LIST: Final = 0
_TUPLE: Final = 1
_DICT: Final = 2
_NAMED_TUPLE: Final = 3
_ENUM: Final = 4
_FLOATS: Final = 5
_OBJECT: Final = 6
_REFERENCE: Final = 7
_LARGE: Final = 8
_PLAIN: Final = frozenset({type(None), bool, float, str, bytes})
_PLAIN_AND_INT: Final = _PLAIN | {int}


class BrokenStateError(Exception):
    """What is to be read is no state."""


class StateCodec:
    """Writes and reads objects of some classes, and builtin containers of them."""

    def __init__(self, classes: Sequence[type]) -> None:
        """The classes are known by their place in the sequence."""
        self._classes = tuple(classes)
        self._numbers = {kind: number for number, kind in enumerate(self._classes)}

    def encode(self, thing: object) -> bytes:
        """The same bytes for the same state. Raises TypeError for what is of no listed class."""
        packed: bytes
        try:
            packed = msgpack.packb(self._lowered(thing, {}, _PLAIN_AND_INT))
        except OverflowError:  # a sum of what a hostile producer claims
            packed = msgpack.packb(self._lowered(thing, {}, _PLAIN))
        return packed

    def decode(self, data: bytes) -> Any:
        """Raises `BrokenStateError` for what `encode` did not make."""
        try:
            return self._raised(msgpack.unpackb(data, use_list=False, max_map_len=0), [])
        except (ValueError, TypeError, IndexError, AttributeError, RecursionError) as error:
            raise BrokenStateError(f"it holds no state: {type(error).__name__}") from None

    def _lowered(self, thing: Any, met: dict[int, int], plain: Set[type]) -> Any:
        kind = type(thing)
        if kind in plain:
            return thing
        if kind is int:
            return thing if -(2**63) <= thing < 2**64 else (_LARGE, str(thing))
        if kind is list or kind is tuple:
            tag = _LIST if kind is list else _TUPLE
            return (tag, *self._all_lowered(thing, met, plain))
        if kind is dict:
            items = chain.from_iterable(thing.items())
            return (_DICT, *self._all_lowered(items, met, plain))
        if kind is array and thing.typecode == "d":
            return (_FLOATS, thing.tobytes())
        number = self._numbers.get(kind)
        if number is None:
            raise TypeError(f"a {kind.__name__} is no part of a state")
        if issubclass(kind, tuple):
            return (_NAMED_TUPLE, number, *self._all_lowered(thing, met, plain))
        if issubclass(kind, Enum):
            return (_ENUM, number, thing.value)
        if id(thing) in met:
            return (_REFERENCE, met[id(thing)])
        met[id(thing)] = len(met)
        names, values = _fields(thing)
        return (_OBJECT, number, names, *self._all_lowered(values, met, plain))

    def _all_lowered(
        self, things: Iterable[Any], met: dict[int, int], plain: Set[type]
    ) -> list[Any]:
        # Most are plain, and a call for each would take most of the time.
        lowered = self._lowered
        return [thing if type(thing) in plain else lowered(thing, met, plain) for thing in things]

    def _raised(self, low: Any, met: list[object]) -> Any:
        if type(low) is not tuple:
            return low
        match low[0]:
            case 0:
                return [self._raised(item, met) for item in low[1:]]
            case 1:
                return tuple([self._raised(item, met) for item in low[1:]])
            case 2:
                items = [self._raised(item, met) for item in low[1:]]
                return dict(zip(items[::2], items[1::2], strict=True))
            case 3:
                _, number, *rest = low
                return self._class(number, tuple)(*[self._raised(item, met) for item in rest])
            case 4:
                _, number, value = low
                return self._class(number, Enum)(value)
            case 5:
                _, packed = low
                floats = array("d")
                floats.frombytes(packed)
                return floats
            case 6:
                return self._object(low, met)
            case 7:
                _, number = low
                if not 0 <= number < len(met):
                    raise IndexError("a reference to nothing")
                return met[number]
            case 8:
                _, digits = low
                return int(digits)
        raise ValueError("no such tag")

    def _object(self, low: tuple[Any, ...], met: list[object]) -> object:
        _, number, names, *values = low
        kind = self._class(number, object)
        if issubclass(kind, (tuple, Enum)):
            raise TypeError("no object")
        thing = object.__new__(kind)
        met.append(thing)  # before its fields, which may refer to it
        for name, value in zip(names.split(","), values, strict=True):
            if name.startswith("__"):
                raise AttributeError("no such field")
            object.__setattr__(thing, name, self._raised(value, met))
        return thing

    def _class(self, number: int, base: type) -> type[Any]:
        if not 0 <= number < len(self._classes) or not issubclass(self._classes[number], base):
            raise IndexError("no such class")
        return self._classes[number]


def _fields(thing: Any) -> tuple[str, Iterable[object]]:
    """The names of what an object holds, joined, and its values: its slots, or its attributes."""
    if hasattr(type(thing), "__slots__"):
        names, values_of = _slots(type(thing))  # type: ignore[arg-type]
        return names, values_of(thing)
    held = sorted(vars(thing).items())
    return ",".join(name for name, _ in held), [value for _, value in held]


@cache
def _slots(kind: type[Any]) -> tuple[str, Callable[[object], Iterable[object]]]:
    names: Sequence[str] = vars(kind)["__slots__"]
    if len(names) == 1:
        return names[0], lambda thing: (getattr(thing, names[0]),)
    return ",".join(names), attrgetter(*names)
