"""What trainers' lanes are doing now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from lilo_engine_hook import wire

from .lanes import GPU, MAX_LANES
from .timing import AGGREGATE, LaneNow

_EXECUTING: Final = "executing:"
_IDLE: Final = "idle"


class LaneActivity(NamedTuple):
    """What a lane has been doing since a time in Unix seconds."""

    since: float
    operation: str
    models: tuple[str, ...]


class Activities:
    """The lanes of one trainer that work now."""

    def __init__(self) -> None:
        self._lanes: dict[str, LaneActivity] = {}

    def __iter__(self) -> Iterator[tuple[str, LaneActivity]]:
        return iter(self._lanes.items())

    def state(self, event: wire.State) -> bool:
        """The gpu lane said what it does; whether that is nothing."""
        if event.state.startswith(_EXECUTING):
            operation = event.state.removeprefix(_EXECUTING)
            self._lanes[GPU] = LaneActivity(event.t, operation, event.models or ())
        elif event.state == _IDLE:
            self._lanes.pop(GPU, None)
            return True
        return False

    def take_up(self, event: wire.Activity) -> None:
        """A lane took up a command, or put it down. Of the gpu lane its state tells more: the
        whole batch."""
        if event.lane == GPU:
            return
        if event.kind is None:
            self._lanes.pop(event.lane, None)
        elif event.lane in self._lanes or len(self._lanes) < MAX_LANES:
            models = () if event.model is None else (event.model,)
            self._lanes[event.lane] = LaneActivity(event.t, event.kind, models)

    def end(self, lane: str, t: float) -> None:
        """The lane's work ended at ``t``."""
        activity = self._lanes.get(lane)
        if activity is not None and activity.since <= t:
            del self._lanes[lane]


def lanes_now(trainers: Iterable[Activities], model_id: str, now: float) -> dict[str, LaneNow]:
    """As it is answered, about one model or all. Of several trainers' lanes of one name, the one
    that is longest in its operation."""
    lanes: dict[str, LaneNow] = {}
    for activities in trainers:
        for name, activity in activities:
            lane = LaneNow(
                activity.operation,
                max(0.0, now - activity.since),
                model_id == AGGREGATE or model_id in activity.models,
            )
            if name not in lanes or lane.for_s > lanes[name].for_s:
                lanes[name] = lane
    return lanes
