"""The answers that clients have not taken, and how much memory they may have together."""

from __future__ import annotations

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
    its memory is given back, which is a turn of the event loop after it is given up on. So there
    are MAX_UNTAKEN bytes and one answer at most, however many ask at once and however fast answers
    are made; and one more, where its writing lets others run. Everything is on trio's one thread.
    """

    def __init__(self) -> None:
        self._bytes = 0
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
    def holding(self, size: int, give_up: Callable[[], None]) -> Iterator[None]:
        """Count an answer of that many bytes until it was taken, or is not going to be.
        ``give_up`` has to see to it that it ends, and is called once at most."""
        answer = object()
        self._bytes += size
        self._held[answer] = _Held(trio.current_time(), give_up)
        try:
            yield
        finally:
            self._bytes -= size
            self._held.pop(answer, None)
            self._fewer.unpark_all()

    async def _wait_for_fewer(self) -> None:
        until = inf
        if self._held:
            oldest, held = next(iter(self._held.items()))
            if held.since + MOMENT <= trio.current_time():
                del self._held[oldest]
                held.give_up()
            else:
                until = held.since + MOMENT
        with trio.move_on_at(until):
            await self._fewer.park()
