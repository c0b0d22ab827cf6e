"""What is missing from the figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..core.delivery import Delivery
from ..words import count
from .facts import Facts
from .finding import Finding

_HOLE: Final = "Counts and sums are too low, and interval.complete is false where it happened."


def loss_findings(facts: Facts) -> Iterator[Finding]:
    """Since the trainer started; nothing, where the sidecar could not be asked."""
    if facts.figures is not None:
        yield from _losses(facts.figures.delivery)


def _losses(delivery: Delivery) -> Iterator[Finding]:
    unheard = delivery.dropped - delivery.missed
    if delivery.missed > 0:
        yield Finding(
            "missed",
            f"{count(delivery.missed, 'event', 'events')} of {delivery.sent:,} never came to this "
            "sidecar's state.",
            _HOLE,
            "A sidecar ended whose journal was off or was removed, or the trainer reported to "
            "another one before: give it a --state-dir on a disk with room that outlives it.",
        )
    if unheard > 0:
        yield Finding(
            "dropped",
            f"{count(unheard, 'event', 'events')} of {delivery.sent:,} were dropped before they "
            "were delivered.",
            _HOLE,
            "The trainer keeps 65,536 events or 16 MiB for a sidecar that is away or too slow: "
            "keep one running (`lilo-sidecar run` restarts it) and give it processor time; the "
            "trainer's log says more.",
        )
    if delivery.rejected > 0:
        yield Finding(
            "rejected",
            f"{count(delivery.rejected, 'call', 'calls')} of the observer made no valid event.",
            _HOLE,
            "The trainer's log has the first reason (lilo timing: ...); docs/OBSERVER.md has the "
            "form of the calls.",
        )
    if delivery.negative > 0:
        yield Finding(
            "negative",
            f"{count(delivery.negative, 'duration', 'durations')} came out below zero.",
            "They are in no series.",
            "A clock was set back, or the engine passes times that are no Unix seconds of its own "
            "machine: look at its time synchronisation, and at t0 and t1 of its spans.",
        )
    if delivery.series_refused > 0:
        yield Finding(
            "series_refused",
            f"{count(delivery.series_refused, 'record', 'records')} found no room: there are 8,192 "
            "series of models.",
            "Models beyond that have no figures.",
            "Have the engine call forget_model when a model is gone, and keep ids out of the names "
            "of operations.",
        )
    if delivery.pending_evicted > 0:
        yield Finding(
            "pending_evicted",
            f"{count(delivery.pending_evicted, 'command', 'commands')} were forgotten while they "
            "waited: over 4,096 were pending.",
            "Their waits are in no series.",
            "Have the engine call finish() for every command, also for failed and cancelled ones.",
        )
    if delivery.unweighed > 0:
        yield Finding(
            "unweighed",
            f"The weight of {count(delivery.unweighed, 'command', 'commands')} could not be told.",
            "They count as one each in their batches, so shares (mine_s, shared_batch_s) are off.",
            "Mend the weigh= function of the observer; the trainer's log has the first reason.",
        )
