"""Who reads a model's figures, or those of all models, and from where on."""

from __future__ import annotations

from typing import Final, NamedTuple

from .delivery import Delivery

READERS_OF_MODEL: Final = 8
READERS_OF_ALL: Final = 64
"""Readers with a name. Beyond it the one that has not read for longest goes."""


MAX_UNACKNOWLEDGED: Final = 2
"""Intervals given to a reader whose ends are kept apart: the one that it received, perhaps, and
one that a request it had given up put behind that."""


class Position(NamedTuple):
    """Where a reader stands, as the numbers of marks."""

    start: int
    """Where its next interval begins."""
    ends: tuple[int, ...]
    """Where the intervals ended that it was given since, and has not acknowledged."""

    def acknowledged(self, number: int) -> Position:
        """Where it stands once it has received what ended at that mark. Never goes back."""
        if number <= self.start:
            return self
        return Position(number, tuple(end for end in self.ends if end > number))

    def given(self, number: int) -> Position:
        """Where it stands once an interval that ends at that mark was given to it."""
        return Position(self.start, (*self.ends, number)[-MAX_UNACKNOWLEDGED:])

    @property
    def heard_by(self) -> int:
        """A mark by which it had been given something; 0 before that."""
        return self.start or (self.ends[0] if self.ends else 0)


_BEGINNING: Final = Position(0, ())


class Readers:
    """The positions of the readers of one ledger, or of several that are cut together.

    Those who gave no name share one position, and what they were given counts as received.
    """

    __slots__ = ("_counts", "_limit", "_named", "_shared")

    def __init__(self, limit: int, counts: Delivery) -> None:
        """``counts`` are those of events that may be anybody's, by now."""
        self._limit = limit
        self._shared = _BEGINNING
        self._named: dict[str, Position] = {}
        """The one that has not read for longest comes first."""
        self._counts = {_BEGINNING.start: counts}
        """The same, at each mark that somebody stands at."""

    def position(self, reader: str | None, acknowledged: int | None) -> Position:
        """Where a reader stands once it has acknowledged the interval that ended there. An
        acknowledgement never takes a reader back; one that is not known (any more) goes on from
        there."""
        held = self._shared if reader is None else self._named.get(reader, _BEGINNING)
        return held if acknowledged is None else held.acknowledged(acknowledged)

    def may_acknowledge(self, reader: str | None, number: int) -> bool:
        """Whether it was given, or may have been given, what ended at that mark."""
        held = _BEGINNING if reader is None else self._named.get(reader, _BEGINNING)
        return held == _BEGINNING or number <= held.start or number in held.ends

    def recount(self, counts: Delivery) -> None:
        """The figures begin afresh, for the same readers: the counts are these, wherever
        somebody stands."""
        self._counts = dict.fromkeys(self._counts, counts)

    def counts_at(self, number: int) -> Delivery:
        """What the counts were at a mark; where nobody stands there, at the beginning, so that
        losses show rather than not."""
        return self._counts.get(number, self._counts[_BEGINNING.start])

    def note(self, number: int, counts: Delivery) -> None:
        """A mark is put, at which the counts are these."""
        self._counts[number] = counts

    def move(self, reader: str | None, position: Position) -> None:
        """The reader read, and stands there now."""
        if reader is None:
            self._shared = position
        else:
            self._named.pop(reader, None)
            self._named[reader] = position
            if len(self._named) > self._limit:
                del self._named[next(iter(self._named))]
        wanted = self.marks() | {_BEGINNING.start}
        self._counts = {n: counts for n, counts in self._counts.items() if n in wanted}

    def marks(self) -> set[int]:
        """The marks that somebody stands at."""
        marks = {self._shared.start}
        for start, ends in self._named.values():
            marks.update((start, *ends))
        return marks
