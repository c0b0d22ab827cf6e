"""A counter that any thread, and a signal handler, can raise without a lock."""

from __future__ import annotations

import itertools


class AtomicCounter:
    """``add()`` is one C call, atomic under the GIL and safe in a free-threaded build.

    A plain ``+= 1`` loses increments between threads; a lock could deadlock when a signal
    handler makes an observer call while the same thread holds it.
    """

    def __init__(self) -> None:
        self._ticks = itertools.count()
        self._reads = 0
        self.add = self._ticks.__next__

    def value(self) -> int:
        """The number of ``add()`` calls so far. For one reading thread only: a look takes a
        tick of its own, which is subtracted."""
        seen = next(self._ticks) - self._reads
        self._reads += 1
        return seen
