"""Bounds on how long something takes, on machines that stand still now and then."""

from __future__ import annotations

import time
from collections.abc import Callable

TRIES = 3


def took(act: Callable[[], object]) -> float:
    """Seconds."""
    began = time.monotonic()
    act()
    return time.monotonic() - began


def assert_within(seconds: float, act: Callable[[], object], *, least: float = 0.0) -> None:
    """``act`` takes less than that, and no less than ``least``. A machine may stand still for a
    while, though hardly each time; a product that takes too long does so each time."""
    tries: list[float] = []
    while not tries or (tries[-1] >= seconds and len(tries) < TRIES):
        tries.append(took(act))
        assert tries[-1] >= least
    assert tries[-1] < seconds, tries
