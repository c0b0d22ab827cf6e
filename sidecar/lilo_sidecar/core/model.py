"""What is held for one model, and for each command it has in the trainer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from .account import Regime, StepAccount, StepSums
from .ledger import Ledger, Mark
from .readers import Readers

REGISTRATION: Final = ""
"""Stands for a request id where a model waits for its acceptance; no request has it."""


class Command:
    """A command from its submission to its finish. Times are Unix seconds."""

    __slots__ = (
        "captured",
        "kind",
        "lane",
        "model",
        "own_before",
        "request_id",
        "seq",
        "started",
        "submitted",
        "weight",
    )

    def __init__(
        self,
        request_id: str,
        model: str,
        kind: str,
        submitted: float,
        *,
        seq: int | None = None,
        weight: float | None = None,
    ) -> None:
        self.request_id = request_id
        self.model = model
        self.kind = kind
        self.submitted = submitted
        self.seq = seq
        """Its place in the order in which its model's commands run."""
        self.weight = weight
        """Its share of a batch, relative to the batch's other commands; None counts as one."""
        self.started = False
        """Whether a lane took it up."""
        self.captured: float | None = None
        """When its capture ended, if it had one."""
        self.lane: str | None = None
        """The persistence lane it waits on."""
        self.own_before = 0.0
        """Seconds the gpu lane had worked for its model when it was submitted."""


class Model:
    """All of it goes when the model is forgotten."""

    __slots__ = (
        "account",
        "batched",
        "captured",
        "commands",
        "executions",
        "ledger",
        "own",
        "queued",
        "readers",
        "returning",
        "started",
    )

    def __init__(self, t: float, mark: Mark, readers: Readers, everyone: StepSums) -> None:
        """Known since ``t`` and from that mark on. ``everyone``: where all models' time goes."""
        self.ledger = Ledger(mark)
        self.readers = readers
        self.account = StepAccount(t, everyone)
        self.commands: dict[str, Command] = {}
        """Unfinished commands by request id, in order of submission."""
        self.queued: dict[str, Command] = {}
        """Those no lane has taken up."""
        self.captured = 0
        """How many are captured and not finished."""
        self.returning = 0
        """How many have run, not captured, and are not finished."""
        self.started: dict[str, Command] = {}
        """Those that one has, and that are not finished."""
        self.own = 0.0
        """Seconds the gpu lane has worked for this model, in batches with it."""
        self.executions = 0
        """Batches that ran with this model in them."""
        self.batched = 0
        """The commands in them, of all models."""

    @property
    def regime(self) -> Regime:
        """What the model does after its latest event."""
        if self.queued:
            return Regime.QUEUED
        return self.regime_unless_queued

    @property
    def regime_unless_queued(self) -> Regime:
        """The same, when what is queued now was not yet."""
        if self.captured:
            return Regime.PERSISTING
        return Regime.RETURNING if self.returning else Regime.CLIENT

    def submit(self, command: Command) -> None:
        """A command came in: it waits from now on."""
        if not self.queued:
            self.account.close(command.submitted, self.regime)
        command.own_before = self.own
        self.queued[command.request_id] = command
        if command.request_id != REGISTRATION:
            self.commands[command.request_id] = command

    def start(self, command: Command, t: float) -> None:
        """A lane took the command up at ``t``. A model that runs commands has been accepted,
        whether or not that was heard."""
        before = self.regime
        command.started = True
        del self.queued[command.request_id]
        self.queued.pop(REGISTRATION, None)
        if command.request_id != REGISTRATION:
            self.started[command.request_id] = command
            self.returning += 1
        if self.regime is not before:
            self.account.close(t, before, command.kind)

    def overtaken_by(self, command: Command) -> list[Command]:
        """Commands whose finish was lost: this one, which runs after them, has finished.
        Commands of a model run in order, and so do those of one lane that persists them."""
        return [
            older
            for older in self.started.values()
            if older.seq is not None
            and command.seq is not None
            and older.seq < command.seq
            and (older.captured is None or (older.lane is not None and older.lane == command.lane))
        ]

    def capture(self, command: Command, t: float) -> None:
        """The command's capture ended at ``t``."""
        if command.captured is None:
            command.captured = t
            self.returning -= 1
            self.captured += 1

    def finish(self, command: Command, t: float) -> None:
        """The command is over, or is given up."""
        before = self.regime
        del self.commands[command.request_id]
        self.started.pop(command.request_id, None)
        if not command.started:
            del self.queued[command.request_id]
        elif command.captured is None:
            self.returning -= 1
        else:
            self.captured -= 1
        if self.regime is not before:
            self.account.close(t, before, command.kind)

    def ran(self, start: float, end: float, share: float, waited_for: str) -> None:
        """The gpu lane worked on a batch with this model in it; the commands in it have been
        started. ``waited_for`` is their kind, if the model waited for them until ``start``."""
        oldest = next(iter(self.queued.values()), None)
        if waited_for:
            self.account.close(start, Regime.QUEUED, waited_for)
        else:
            self.account.close(start, self.regime, oldest.kind if oldest else "")
        self.account.run(start, end, share)
        for command in self._submitted_after(start):
            # Work that began before a command came in, and is only heard of now, is none that
            # the command waited through.
            command.own_before += min(command.submitted, end) - start
        self.own += end - start
        if oldest is not None:
            # What is queued now may have come in after the work had ended.
            self.account.close(oldest.submitted, self.regime_unless_queued)

    def _submitted_after(self, t: float) -> Iterator[Command]:
        for command in reversed(self.queued.values()):
            if command.submitted <= t:
                return
            yield command
