"""What is wrong with the trainer, as far as the sidecar hears of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..shown import shown
from ..words import duration
from .facts import Facts, Health
from .finding import Finding

STUCK_AFTER: Final = 300.0
"""Seconds in one operation. A step takes seconds, a large checkpoint a few minutes."""
_ATTACH: Final = (
    "in the trainer: from lilo_engine_hook import attach; timing = attach(engine); "
    "timing.backend_ready()"
)


def trainer_findings(facts: Facts) -> Iterator[Finding]:
    """Nothing, where the sidecar could not be asked."""
    health = facts.health
    if health is None:
        return
    if not health.connected:
        yield _not_connected(facts, health)
    elif facts.figures is not None and not facts.figures.delivery.sent:
        yield Finding(
            "no_calls",
            "A trainer is connected, and its engine has not called the observer yet.",
            "Nothing is measured.",
            "If clients are at work, another engine than the one that was attached serves them; "
            f"{_ATTACH}.",
        )
    elif facts.figures is not None and not facts.figures.executed:
        yield Finding(
            "no_operations",
            "The trainer's engine reports, and no operation has run yet.",
            "There is nothing to measure.",
            "If clients are at work, the engine does not call the observer's span() at the end of "
            "a batch; docs/OBSERVER.md lists the calls.",
        )
    for lane, (operation, seconds) in sorted(health.lanes.items()):
        if seconds >= STUCK_AFTER:
            yield Finding(
                "lane_stuck",
                f"The lane {shown(lane)} has been in {shown(operation)} for {duration(seconds)}.",
                "All clients wait for it.",
                "If that is longer than such an operation takes, look at the trainer: py-spy dump "
                "--pid shows where it is.",
            )


def _not_connected(facts: Facts, health: Health) -> Finding:
    if health.producers:
        return Finding(
            "no_engine",
            f"Only a GPU backend is connected ({health.producers} processes), and no engine.",
            "The device is timed, and neither waits nor steps are.",
            f"Attach the engine, too; {_ATTACH}.",
        )
    if health.last_heard_age_s is None:
        socket = "the sidecar's socket" if facts.socket is None else str(facts.socket.path)
        return Finding(
            "no_trainer",
            f"No trainer has connected since the sidecar started {duration(health.uptime_s)} ago.",
            "Nothing is measured.",
            f"Start the trainer with LILO_TIMING_SOCKET={socket}; {_ATTACH}.",
        )
    return Finding(
        "trainer_gone",
        f"The trainer is gone; it was last heard {duration(health.last_heard_age_s)} ago.",
        "Nothing is measured since.",
        "If it should run, start it again; its own log says why it ended.",
    )
