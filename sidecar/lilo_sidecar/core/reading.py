"""How an interval is read, ended and acknowledged. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .account import StepAccount, StepSums
from .delivery import Delivery
from .ledger import Cuts, Interval, Ledger, Mark
from .readers import Position, Readers
from .series import Phases, merged


class Source(NamedTuple):
    """One ledger that an interval is read from, with what belongs to it at this moment."""

    ledger: Ledger
    counts: Delivery
    """Of its trainer."""
    account: StepAccount | None = None
    """Of its model."""

    def interval(self, number: int) -> Interval:
        """The figures after that mark."""
        return self.ledger.interval(number, self.account.sums if self.account else StepSums())

    def cut(self, number: int) -> None:
        """Put a mark here."""
        until, sums = 0.0, StepSums()
        if self.account is not None:
            until, sums = self.account.until, self.account.take()
        self.ledger.cut(Mark(number, until, self.counts), sums)


class Reading(NamedTuple):
    """One reader's interval."""

    start: int
    """The number of the mark where it begins."""
    end: int | None
    """That of the mark where it was ended, which a named reader is to acknowledge."""
    heard_by: int
    """A mark by which the reader had been given something; 0 if it never was."""
    held: bool
    """Whether it begins where the reader's last one ended."""
    phases: Phases
    delivery: Delivery
    since: float
    until: float
    """Unix seconds between which the account was settled."""
    sums: StepSums


def read(
    sources: Sequence[Source],
    readers: Readers,
    cuts: Cuts,
    reader: str | None,
    acknowledged: int | None,
    *,
    reset: bool,
    unowned: Delivery,
) -> Reading:
    """Read a reader's interval from ledgers that are always cut together; with ``reset`` end it.
    The account is that of the last source. ``unowned`` are the counts of events that may have
    been for any of them."""
    known = acknowledged is None or readers.may_acknowledge(reader, acknowledged)
    position = readers.position(reader, acknowledged)
    intervals = [source.interval(position.start) for source in sources]
    account = sources[-1].account if sources else None
    delivery = unowned.minus(readers.counts_at(position.start))
    for source, interval in zip(sources, intervals, strict=True):
        delivery = delivery.plus(source.counts.minus(interval.since.delivery))
    reading = Reading(
        position.start,
        None,
        position.heard_by,
        known and all(source.ledger.holds(position.start) for source in sources),
        merged([interval.phases for interval in intervals]),
        delivery,
        intervals[-1].since.settled if intervals else 0.0,
        account.until if account is not None else 0.0,
        intervals[-1].sums if intervals else StepSums(),
    )
    if reset:
        number = cuts.next()
        readers.note(number, unowned)
        for source in sources:
            source.cut(number)
        if reader is None:
            position = Position(number, ())
        else:
            position = position.given(number)
            reading = reading._replace(end=number)
    if reset or acknowledged is not None:
        readers.move(reader, position)
        for source in sources:
            source.ledger.keep(readers.marks())
    return reading
