"""The answers that clients have not taken, and how much memory they may have together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import Final, NamedTuple

import trio

MAX_UNTAKEN: Final = 4 * 1024 * 1024
"""Bytes with which no further answer is made; the largest have some hundred kB."""
MOMENT: Final = 0.05
"""Seconds in which a client is expected to take its answer, where others wait for the room."""


class _Held(NamedTuple):
    """One answer."""

    since: float
    give_up: Callable[[], None]


class Untaken:
    """Bounds answers before they are made: what is made is in memory, whatever is decided then.

    Whoever waits for room gets it in the order they came, when clients take theirs; the one that
    had its answer for longest, and for more than a moment, is given up on. An answer counts until
    its memory is given back, which is a turn of the event loop after it is given up on; one that
    several have counts once. So there are MAX_UNTAKEN bytes at most and what is being made, however
    many ask at once and however fast answers are made. Everything is on trio's one thread.
    """

    def __init__(self) -> None:
        self._bytes = 0
        self._clients: Counter[int] = Counter()
        """How many have the answer, by its identity."""
        self._held: dict[object, _Held] = {}
        """Those that can be given up on, the oldest first."""
        self._turn = trio.Lock()
        self._fewer = trio.lowlevel.ParkingLot()

    @property
    def is_full(self) -> bool:
        """Whether the next answer waits for clients to take theirs."""
        return self._bytes > MAX_UNTAKEN

    async def room(self) -> None:
        """Wait until another answer may be made; at once, where there is room. The caller makes it
        and goes on to `holding` it without letting others run in between, or one at a time."""
        if not self.is_full and not self._turn.locked():
            return
        async with self._turn:
            while self.is_full:
                await self._wait_for_fewer()

    @contextmanager
    def holding(self, answer: bytes, give_up: Callable[[], None]) -> Iterator[None]:
        """Count an answer until a client has taken it, or is not going to. ``give_up`` has to see
        to it that this ends, and is called once at most."""
        holder = object()
        self._held[holder] = _Held(trio.current_time(), give_up)
        self._clients[id(answer)] += 1
        if self._clients[id(answer)] == 1:
            self._bytes += len(answer)
        try:
            yield
        finally:
            self._held.pop(holder, None)
            self._clients[id(answer)] -= 1
            if not self._clients[id(answer)]:
                del self._clients[id(answer)]
                self._bytes -= len(answer)
            self._fewer.unpark_all()

    def give_up_oldest(self) -> bool:
        """Give up on the client that had its answer for longest, if that is more than a moment."""
        if not self._held or self._oldest_had_its_moment > trio.current_time():
            return False
        self._held.pop(next(iter(self._held))).give_up()
        return True

    @property
    def _oldest_had_its_moment(self) -> float:
        """When it has, or had."""
        return next(iter(self._held.values())).since + MOMENT if self._held else inf

    async def _wait_for_fewer(self) -> None:
        with trio.move_on_at(inf if self.give_up_oldest() else self._oldest_had_its_moment):
            await self._fewer.park()
