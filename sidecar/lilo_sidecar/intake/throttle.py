"""Log lines that others can cause: so many of a kind, then how many more there were."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import trio

LINES: Final = 10
"""Of a kind, within PERIOD: enough to see what is going on."""
PERIOD: Final = 60.0
"""Seconds."""
MAX_KINDS: Final = 64
"""Kinds that are told apart; those beyond are one kind. There are about twenty."""
_OTHERS: Final = "others"


@dataclass(slots=True)
class _Period:
    ends: float
    lines: int = 0
    left_out: int = 0


class Throttle:
    """Passes lines on to a logger. Whoever fails over and over, a client or the machine, fills no
    disk with it, and does not hide behind its lines what else is to be told.

    One thread. ``clock`` gives seconds that only grow; trio's, where there is no other.
    """

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = trio.current_time) -> None:
        self._log = log
        self._clock = clock
        self._periods: dict[str, _Period] = {}

    def tell(
        self, level: int, kind: str, message: str, *arguments: object, lines: int = LINES
    ) -> None:
        """Log a line, if there were fewer than ``lines`` of its kind since a line of that kind
        began a PERIOD; count it otherwise."""
        self.settle()
        if kind not in self._periods and len(self._periods) >= MAX_KINDS:
            kind = _OTHERS
        period = self._periods.setdefault(kind, _Period(self._clock() + PERIOD))
        if period.lines < lines:
            period.lines += 1
            self._log.log(level, message, *arguments)
        else:
            period.left_out += 1

    def settle(self) -> None:
        """Say of each kind how many were left out, once its period is over. To be called every
        now and then, lest the last ones are never told."""
        now = self._clock()
        for kind in [kind for kind, period in self._periods.items() if period.ends <= now]:
            self._finish(kind)

    def close(self) -> None:
        """Say it of those whose period is not over."""
        for kind in list(self._periods):
            self._finish(kind)

    def _finish(self, kind: str) -> None:
        period = self._periods.pop(kind)
        if period.left_out:
            self._log.warning(
                "lines about %r: %d were written, %d more were left out",
                kind,
                period.lines,
                period.left_out,
            )
