"""Where a model's time went: at every instant it is in exactly one state.

The account is a cursor that moves along the model's own events. Behind it, time is summed per
state; between the cursor and the model's latest event lie a few closed pieces whose state is
known but whose split may still wait for the gpu lane's timeline to catch up.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

MAX_PIECES: Final = 64
"""Pieces that may wait for the lane. Commands given up while they queue, and work on other lanes,
add some; beyond this many the oldest are split by what is known."""


class Regime(enum.Enum):
    """What a model does between two of its events."""

    QUEUED = enum.auto()
    """A command of it waits for the gpu lane."""
    PERSISTING = enum.auto()
    """Nothing queued or running; an operation is captured and not finished."""
    RETURNING = enum.auto()
    """Nothing of these; a command has run and its result is not handed out yet."""
    CLIENT = enum.auto()
    """Nothing of it is in the trainer."""


@dataclass(slots=True)
class StepSums:
    """Seconds by state. See `Step` for what each one means."""

    mine: float = 0.0
    shared_batch: float = 0.0
    neighbors: float = 0.0
    overhead: float = 0.0
    persist: float = 0.0
    client: float = 0.0

    def add(self, other: StepSums) -> None:
        """Add another's seconds to these."""
        self.mine += other.mine
        self.shared_batch += other.shared_batch
        self.neighbors += other.neighbors
        self.overhead += other.overhead
        self.persist += other.persist
        self.client += other.client

    def to_tuple(self) -> tuple[float, float, float, float, float, float]:
        """The seconds in the order of the fields."""
        return (
            self.mine,
            self.shared_batch,
            self.neighbors,
            self.overhead,
            self.persist,
            self.client,
        )


class QueuedSplit(NamedTuple):
    """A stretch of waiting for the gpu lane, by what the trainer did meanwhile."""

    neighbors: float
    overhead: float
    persist: float


SplitQueued: TypeAlias = Callable[[float, float, str], QueuedSplit]
"""Splits the waiting between two times for a command of the given kind."""


class _Piece(NamedTuple):
    start: float
    end: float
    regime: Regime | None
    """None while the model's own work runs."""
    kind: str
    """Kind of the command that waited, while QUEUED."""
    share: float
    """The model's part of the batch, while its own work runs."""


class StepAccount:
    """One model's account. Times are Unix seconds; calls come in the order of events, and
    times that run backwards are moved up to the cursor."""

    __slots__ = ("_closed", "_everyone", "_pieces", "sums", "taken", "until")

    def __init__(self, t: float, everyone: StepSums) -> None:
        """From ``t`` on; what it adds to its sums it also adds to those of ``everyone``."""
        self.until = t
        """Everything before is in the sums."""
        self.sums = StepSums()
        """Since the account was last taken."""
        self.taken = StepSums()
        """All that was taken so far."""
        self._everyone = everyone
        self._closed = t
        """Everything before is in the sums or in the pieces."""
        self._pieces: list[_Piece] = []

    @property
    def is_settled(self) -> bool:
        """Whether everything that was heard is in the sums."""
        return not self._pieces

    @property
    def crowded(self) -> bool:
        """Whether more than MAX_PIECES wait, so that it is time to settle."""
        return len(self._pieces) > MAX_PIECES

    def close(self, t: float, regime: Regime, kind: str = "") -> None:
        """The model was in ``regime`` until ``t``."""
        if t > self._closed:
            self._pieces.append(_Piece(self._closed, t, regime, kind, 0.0))
            self._closed = t

    def run(self, start: float, end: float, share: float) -> None:
        """The gpu lane ran a batch with this model in it, ``share`` of it for the model. What
        the pieces said about that time before (a finish came first) gives way."""
        if start < self._closed:
            self._overlay(start, end, share)
        if end > self._closed:
            self._pieces.append(_Piece(max(start, self._closed), end, None, "", share))
            self._closed = end

    def _overlay(self, start: float, end: float, share: float) -> None:
        pieces: list[_Piece] = []
        for piece in self._pieces:
            inner_start, inner_end = max(start, piece.start), min(end, piece.end)
            if piece.regime is None or inner_start >= inner_end:
                pieces.append(piece)
                continue
            if piece.start < inner_start:
                pieces.append(piece._replace(end=inner_start))
            pieces.append(_Piece(inner_start, inner_end, None, "", share))
            if inner_end < piece.end:
                pieces.append(piece._replace(start=inner_end))
        self._pieces = pieces

    def settle(self, known_until: float, split_queued: SplitQueued) -> None:
        """Move the cursor over the pieces, up to one of waiting that ends after
        ``known_until``, the time up to which the gpu lane has been heard."""
        settled = 0
        for piece in self._pieces:
            if (
                piece.regime is Regime.QUEUED
                and piece.end > known_until
                and len(self._pieces) - settled <= MAX_PIECES
            ):
                break
            self._add(piece, split_queued)
            self.until = piece.end
            settled += 1
        del self._pieces[:settled]

    def _add(self, piece: _Piece, split_queued: SplitQueued) -> None:
        # Everyone's are a running sum of their own: added up from the models', in whatever order,
        # they would be rounded differently each time, and could fall by that.
        sums, everyone, seconds = self.sums, self._everyone, piece.end - piece.start
        match piece.regime:
            case None:
                mine = seconds * piece.share
                sums.mine += mine
                everyone.mine += mine
                sums.shared_batch += seconds - mine
                everyone.shared_batch += seconds - mine
            case Regime.QUEUED:
                split = split_queued(piece.start, piece.end, piece.kind)
                sums.neighbors += split.neighbors
                everyone.neighbors += split.neighbors
                sums.overhead += split.overhead
                everyone.overhead += split.overhead
                sums.persist += split.persist
                everyone.persist += split.persist
            case Regime.PERSISTING:
                sums.persist += seconds
                everyone.persist += seconds
            case Regime.RETURNING:
                sums.overhead += seconds
                everyone.overhead += seconds
            case Regime.CLIENT:
                sums.client += seconds
                everyone.client += seconds

    def take(self) -> StepSums:
        """The sums so far, for whoever keeps them from now on."""
        sums, self.sums = self.sums, StepSums()
        self.taken.add(sums)
        return sums

    def total(self) -> StepSums:
        """The sums since the account began, whoever took what."""
        total = StepSums(*self.taken.to_tuple())
        total.add(self.sums)
        return total

    def foreseen(self, known_until: float, split_queued: SplitQueued) -> tuple[float, StepSums]:
        """Up to when the account would be settled now, and the sums since it began by then. It is
        not: what comes late may still change how waiting is split."""
        ahead = StepAccount(self.until, StepSums())
        ahead.sums = self.total()
        ahead._pieces = self._pieces.copy()
        ahead.settle(known_until, split_queued)
        return ahead.until, ahead.sums
