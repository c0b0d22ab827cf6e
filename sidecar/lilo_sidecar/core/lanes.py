"""A trainer's lanes: the one that runs on the GPU, and those that persist what it captured."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from lilo_engine_hook import wire

from .model import Command
from .persistence import PersistenceLane
from .timeline import LaneTimeline

GPU: Final = "gpu"
"""The one serialized lane that waits, shares and accounts are about."""
MAX_LANES: Final = 16
"""Lanes of one trainer: the gpu lane and a few that persist."""


class Window(NamedTuple):
    """What the lanes did between two times, as it concerns a model that waited for the gpu
    lane; seconds that add up to the window."""

    unknown: float
    """Before the gpu lane's timeline reaches back."""
    busy: float
    """The gpu lane ran something."""
    behind_own: float
    """It was idle: the lane that has to persist the waiting command's kind worked for the
    model itself."""
    behind_others: float
    """It was idle: that lane worked for other models."""
    idle: float
    """It was idle for no such reason."""


class Lanes:
    """Answers what the lanes did in any window. Times are Unix seconds."""

    def __init__(self) -> None:
        self.gpu = LaneTimeline()
        self._persistence: dict[str, PersistenceLane] = {}
        self._lane_of_kind: dict[str, str] = {}

    def window(
        self, model: str, kind: str, start: float, end: float, *, keep: bool = True
    ) -> Window:
        """What a command of ``kind`` of ``model`` waited through from ``start`` to ``end``,
        which the gpu lane must be known until. Without ``keep`` nothing changes by it; with it,
        sums are kept that the next one needs."""
        known = min(max(start, self.gpu.known_from), end)
        busy = self.gpu.busy(known, end)
        idle = end - known - busy
        mine = others = 0.0
        lane = self._persistence.get(self._lane_of_kind.get(kind, ""))
        if lane is not None and idle > 0.0:
            mine, others = lane.split(model, known, end, self.gpu, keep=keep)
            # A span that came late may have taken idle time away since.
            mine = min(mine, idle)
            others = min(others, idle - mine)
        return Window(known - start, busy, mine, others, idle - mine - others)

    def learn(self, kind: str, lane: str, pending: Iterable[Command]) -> None:
        """``lane`` persists ``kind``, as was seen for the first time; ``pending`` are the
        commands that may be on it already."""
        if kind in self._lane_of_kind or len(self._lane_of_kind) >= wire.MAX_NAMES:
            return
        if lane not in self._persistence:
            if len(self._persistence) >= MAX_LANES:
                return
            self._persistence[lane] = PersistenceLane()
        self._lane_of_kind[kind] = lane
        for command in pending:
            if command.kind == kind:
                self.captured(command)

    def captured(self, command: Command) -> None:
        """A command's capture ended: it goes on to the lane that persists its kind."""
        lane = self._lane_of_kind.get(command.kind)
        if lane is not None and command.lane is None and command.captured is not None:
            command.lane = lane
            self._persistence[lane].enter(command.request_id, command.model, command.captured)

    def finished(self, command: Command, t: float) -> None:
        """A command is over."""
        if command.lane is not None:
            self._persistence[command.lane].leave(command.request_id, t)

    def forget(self, model: str) -> None:
        """Let go of a model none of whose commands is left."""
        for lane in self._persistence.values():
            lane.forget(model)
