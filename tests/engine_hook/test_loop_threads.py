"""Blocks of one loop in several threads: what the gpu lane is said to do last is true."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from lilo_engine_hook.loop import LoopTiming, Work

BACKWARD = "forward_backward"


class Overtaken:
    """An observer that is slow to hear of a state: another thread does something first."""

    def __init__(self) -> None:
        self.states: list[str] = []
        self.first: list[Callable[[], object] | None] = []
        """What to do before each state from now on, in order."""

    def __getattr__(self, _: str) -> Any:
        return lambda *args, **attrs: None

    def state(self, models: Any, state: str) -> None:
        first = self.first.pop(0) if self.first else None
        if first is not None:
            thread = threading.Thread(target=first)
            thread.start()
            thread.join()
        self.states.append(state)


def two_blocks(overtaken: Overtaken) -> tuple[Work, Work]:
    timing = LoopTiming(overtaken)
    return (
        timing.execute(timing.command("m", "forward")),
        timing.execute(timing.command("m", BACKWARD)),
    )


def test_a_block_that_begins_while_the_last_one_ends_is_not_idle() -> None:
    """One thread is about to say idle, and another's block begins and says so first: the lane's
    last word is that block, until it ends."""
    overtaken = Overtaken()
    first, second = two_blocks(overtaken)
    first.begin()
    overtaken.first = [second.begin]
    first.finish()
    assert overtaken.states[-1] == f"executing:{BACKWARD}"
    second.finish()
    assert overtaken.states[-1] == "idle"


def test_a_block_that_ends_while_it_is_told_of_ends_idle() -> None:
    """Of the block that begins, and of one that is told of once more."""
    overtaken = Overtaken()
    first, second = two_blocks(overtaken)
    overtaken.first = [first.finish]
    first.begin()
    assert overtaken.states == ["idle", "executing:forward", "idle"]
    first.begin()
    overtaken.first = [second.begin, None, second.finish]
    first.finish()
    assert overtaken.states[-4:] == ["idle", "idle", f"executing:{BACKWARD}", "idle"]


def test_a_block_that_was_let_go_of_does_not_keep_the_lane_busy() -> None:
    """Begun, and then an exception took the loop past its finish."""
    overtaken = Overtaken()
    first, second = two_blocks(overtaken)
    first.begin()
    del first
    with second:
        pass
    assert overtaken.states[-1] == "idle"
