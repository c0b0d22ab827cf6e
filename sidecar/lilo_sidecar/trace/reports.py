"""What journals say that producers reported, each event once. Pure."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from lilo_engine_hook import wire

from ..state.journal import (
    Applied,
    BrokenJournalError,
    Connected,
    Disconnected,
    Record,
    read_records,
)

_MAX_TIME: Final = 1e11
"""Unix seconds. No clock goes as far, and every earlier time has a date."""


class Report(NamedTuple):
    """What one process of a trainer said or did, in the order in which the sidecar heard it."""

    now: float
    """Unix seconds, by the sidecar's clock."""
    boot_id: str
    """Which process."""
    hello: wire.Hello | None
    """It connected."""
    events: Sequence[wire.Event]
    """It reported these; each comes once."""
    gone: bool
    """Its connection ended."""


def reports(journals: Sequence[bytes]) -> Iterator[Report]:
    """All of them, in order. What is torn or damaged, or of no time of a clock's, is left out."""
    heard: dict[str, int] = {}
    for journal in journals:
        for record in _records(journal):
            match record:
                case Connected(now, payload):
                    hello = _decoded(payload)
                    if isinstance(hello, wire.Hello):
                        yield Report(now, hello.boot_id, hello, (), False)
                case Disconnected(now, boot_id):
                    yield Report(now, boot_id, None, (), True)
                case Applied(now, boot_id, payload):
                    batch = _decoded(payload)
                    if isinstance(batch, wire.Batch):
                        # A batch that was not acknowledged comes again.
                        known = heard.get(boot_id, 0) - batch.first_seq + 1
                        events = batch.events[max(0, known) :]
                        last = batch.first_seq + len(batch.events) - 1
                        heard[boot_id] = max(heard.get(boot_id, 0), last)
                        yield Report(now, boot_id, None, events, False)


def span_of_time(journals: Sequence[bytes]) -> tuple[float, float] | None:
    """When the first batch was heard, and the last one; None if there was none."""
    times = [
        record.now
        for journal in journals
        for record in _records(journal)
        if isinstance(record, Applied)
    ]
    return (min(times), max(times)) if times else None


def _records(journal: bytes) -> Iterator[Record]:
    with contextlib.suppress(BrokenJournalError):
        for record in read_records(journal):
            if 0 <= record.now < _MAX_TIME:  # false for NaN, too
                yield record


def _decoded(payload: bytes) -> wire.Message | None:
    try:
        return wire.decode(payload)
    except wire.ProtocolError:
        return None
