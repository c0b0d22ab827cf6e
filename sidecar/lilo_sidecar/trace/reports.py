"""What journals say that producers reported, each event once. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lilo_engine_hook import wire

from ..state.journal import (
    Applied,
    BrokenJournalError,
    Connected,
    Disconnected,
    Record,
    TornJournalError,
    is_dated,
    read_records,
)


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


@dataclass(slots=True)
class LeftOut:
    """What journals have and no report has: counted as they are read."""

    records: int = 0
    """Damaged, or of a time that no clock has."""
    journals: int = 0
    """Damaged, so that nobody can tell what follows; or of another format."""


def reports(journals: Sequence[bytes], left_out: LeftOut) -> Iterator[Report]:
    """All of them, in order. What is damaged, or of a time that no clock has, is left out and
    counted; what is torn was not reported yet."""
    heard: dict[str, int] = {}
    for journal in journals:
        for record in _records(journal, left_out):
            match record:
                case Connected(now, payload):
                    hello = _decoded(payload)
                    if isinstance(hello, wire.Hello):
                        yield Report(now, hello.boot_id, hello, (), False)
                    else:
                        left_out.records += 1
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
                    else:
                        left_out.records += 1


def span_of_time(journals: Sequence[bytes]) -> tuple[float, float] | None:
    """When the first batch was heard, and the last one; None if there was none."""
    times = [
        record.now
        for journal in journals
        for record in _records(journal, LeftOut())
        if isinstance(record, Applied)
    ]
    return (min(times), max(times)) if times else None


def _records(journal: bytes, left_out: LeftOut) -> Iterator[Record]:
    try:
        for record in read_records(journal):
            if is_dated(record):
                yield record
            else:
                left_out.records += 1
    except TornJournalError:
        pass
    except BrokenJournalError:
        left_out.journals += 1


def _decoded(payload: bytes) -> wire.Message | None:
    try:
        return wire.decode(payload)
    except wire.ProtocolError:
        return None
