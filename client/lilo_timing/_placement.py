"""Which trainer's clients wait least. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

TIE_S: Final = 0.010
"""Waits that differ by less than this many seconds are the same: below it is scheduling noise."""
_WAIT: Final = ".queue_wait"


class Waiting(Protocol):
    """What is known of a trainer; `TrainerTiming` is one."""

    @property
    def wait_s(self) -> float | None: ...
    @property
    def consecutive_failures(self) -> int: ...


def least_waiting(trainers: Mapping[str, Waiting], placed: Mapping[str, int] | None = None) -> str:
    """The trainer to place a new model on.

    Trainers whose last poll succeeded come first, then those that answered once, then those that
    never did. Among them the shortest recent wait wins (`recent_wait`). Waits within 10 ms of it
    are a tie, which the fewest ``placed`` models break (how many the control plane has put on
    each: a poll shows a new model's waits only later), then the mapping's order.

    Raises LookupError without any trainer.
    """
    if not trainers:
        raise LookupError("there is no trainer to place a model on")
    ranks = {name: _rank(trainer) for name, trainer in trainers.items()}
    best = min(ranks.values())
    tied = [
        name for name, (state, wait) in ranks.items() if state == best[0] and wait - best[1] < TIE_S
    ]
    models = placed or {}
    return min(tied, key=lambda name: models.get(name, 0))


def _rank(trainer: Waiting) -> tuple[int, float]:
    wait = trainer.wait_s
    if wait is None:
        return 2, 0.0
    return (1 if trainer.consecutive_failures else 0), wait


def recent_wait(earlier: Mapping[str, Any] | None, later: Mapping[str, Any]) -> float:
    """Seconds that a command waited recently, from two cumulative answers of one trainer.

    The mean of ``queue_wait``, over all kinds, of the commands that were taken up between the
    two. If none was, the time that the gpu lane has been in its present operation (whoever waits,
    waits for that), which is 0 when it is idle. If there is no earlier answer, or the counts fell
    (the trainer restarted, or the sidecar lost its state), the later one alone counts.
    """
    now = _waited(later)
    before = _waited(earlier) if earlier is not None else _Waited(0, 0.0)
    count, total = now.count - before.count, now.total_s - before.total_s
    if count < 0 or total < 0:
        count, total = now.count, now.total_s
    return total / count if count else _running_for(later)


@dataclass(frozen=True, slots=True)
class _Waited:
    count: float
    total_s: float


def _waited(answer: Mapping[str, Any]) -> _Waited:
    phases = [phase for name, phase in answer["phases"].items() if name.endswith(_WAIT)]
    return _Waited(
        sum(phase["count"] for phase in phases), sum(phase["total_s"] for phase in phases)
    )


def _running_for(answer: Mapping[str, Any]) -> float:
    """Of the gpu lane; 0 from a sidecar that does not tell."""
    match answer:
        case {"lanes": {"gpu": {"for_s": int() | float() as seconds}}}:
            return float(seconds)
    return 0.0
