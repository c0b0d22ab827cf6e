"""A timing answer, taken apart and checked: what later modules merge, flatten and compare."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from .errors import UnexpectedAnswerError

Numbers = Mapping[str, float]
"""Values by name; their units are in the names (``_s`` is seconds)."""

PHASE_STATS: Final = ("count", "total_s", "mean_s", "max_s", "mean_batch")
_SECTIONS: Final = frozenset(
    {"phases", "waits", "shares", "step", "gauges", "interval", "delivery", "journal"}
)
_MAX_CURSOR: Final = 64
"""Characters that a sidecar takes back."""
_CURSOR: Final = re.compile(r"[0-9a-f]+\.[0-9]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Interval:
    """What an answer covers, for one reader."""

    begin: str
    """The cursor where it begins."""
    cursor: str | None
    """The cursor where it ends, to be acknowledged; None if the request did not end it."""
    complete: bool
    """Whether all that the trainer reported is in it, and it follows the reader's last one."""


@dataclass(frozen=True, slots=True)
class TimingAnswer:
    """One model's figures over one interval; see docs of the sidecar for their meaning."""

    phases: Mapping[str, Numbers]
    """By phase: `PHASE_STATS`."""
    waits: Mapping[str, Numbers] = field(default_factory=dict)
    """By kind: parts of ``K.queue_wait``, seconds."""
    shares: Numbers = field(default_factory=dict)
    """By kind: the model's share of ``K.execute``, seconds."""
    step: Numbers | None = None
    """The step account: ``wall_s``, its parts, and ``since`` and ``until`` in Unix seconds."""
    gauges: Numbers = field(default_factory=dict)
    """Seconds since the trainer's process started."""
    delivery: Numbers = field(default_factory=dict)
    """Counts over the interval; from a server that tells no interval, since the trainer's process
    started."""
    interval: Interval | None = None
    """None from a server that does not tell."""
    journal: bool | None = None
    """Whether the sidecar writes its journal, without which a restart of it loses figures; None
    from a server that does not tell."""
    others: Mapping[str, Numbers] = field(default_factory=dict)
    """Sections that this version does not know, as far as they are names and numbers."""

    @property
    def unknown(self) -> bool:
        """Whether the sidecar knows no such model: it keeps an account of each that it knows (and
        none of all together). False from a server that tells no interval."""
        return self.interval is not None and self.step is None and not self.phases


def parse_answer(content: Mapping[str, object]) -> TimingAnswer:
    """Check an answer. Raises `UnexpectedAnswerError` saying where it is none of ours."""
    if "phases" not in content:
        raise UnexpectedAnswerError("the answer has no phases")
    step = content.get("step")
    return TimingAnswer(
        phases=_table(content, "phases", required=PHASE_STATS),
        waits=_table(content, "waits"),
        shares=_numbers(content.get("shares", {}), "shares"),
        step=None if step is None else _numbers(step, "step"),
        gauges=_numbers(content.get("gauges", {}), "gauges"),
        delivery=_numbers(content.get("delivery", {}), "delivery"),
        interval=_interval(content.get("interval")),
        journal=_journal(content.get("journal")),
        others=dict(_others(content)),
    )


def _table(
    content: Mapping[str, object], section: str, required: tuple[str, ...] = ()
) -> dict[str, Numbers]:
    rows = content.get(section, {})
    if not isinstance(rows, dict):
        raise UnexpectedAnswerError(f"{section} of the answer is not an object")
    table: dict[str, Numbers] = {}
    for name, row in rows.items():
        numbers = table[name] = _numbers(row, f"{section}[{name[:64]!r}]")
        for stat in required:
            if stat not in numbers:
                raise UnexpectedAnswerError(f"{section}[{name[:64]!r}] has no {stat}")
    return table


def _numbers(value: object, where: str) -> dict[str, float]:
    if not isinstance(value, dict):
        raise UnexpectedAnswerError(f"{where} of the answer is not an object")
    for name, number in value.items():
        if not _is_number(number):
            raise UnexpectedAnswerError(f"{where} has no finite number as {name[:64]!r}")
    return value


def _interval(value: object) -> Interval | None:
    match value:
        case None:
            return None
        case {"from": str() as begin, "cursor": None | str() as end, "complete": bool() as whole}:
            if _is_cursor(begin) and (end is None or _is_cursor(end)):
                return Interval(begin, end, whole)
    raise UnexpectedAnswerError("interval of the answer has no from, cursor and complete as such")


def _is_cursor(text: str) -> bool:
    return len(text) <= _MAX_CURSOR and _CURSOR.fullmatch(text) is not None


def _journal(value: object) -> bool | None:
    match value:
        case None:
            return None
        case {"writing": bool() as writing}:
            return writing
    raise UnexpectedAnswerError("journal of the answer does not say whether it is writing")


def _others(content: Mapping[str, object]) -> Iterator[tuple[str, dict[str, float]]]:
    for section, value in content.items():
        if section not in _SECTIONS and isinstance(value, dict):
            numbers = {name: number for name, number in value.items() if _is_number(number)}
            if numbers:
                yield section, numbers


def _is_number(value: object) -> bool:
    """Finite, and as a float, too: JSON has integers beyond a float's range. True is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
