"""Which commands run next. Pure: no clock, no I/O, one thread.

Each model's commands run in the order of their sequence ids, whatever order they arrive in.
Models take turns: whoever ran last goes to the end of the rotation.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from .errors import BusyError, ConflictError
from .operations import Kind, Operation

MAX_QUEUED: Final = 64
"""Commands of one model that wait, and how far ahead of its turn a sequence id may be. A client
pipelines a handful."""


class Scheduler:
    """``token_budget`` bounds the tokens of a coalesced batch; one command alone may exceed it."""

    def __init__(self, token_budget: int) -> None:
        self._token_budget = token_budget
        self._rotation: list[str] = []
        """Whose turn it is, the next one first."""
        self._next_seq: dict[str, int] = {}
        self._queued: dict[str, dict[int, Operation]] = {}
        """By model and sequence id: those that wait, and those that came before their turn."""

    @property
    def models(self) -> list[str]:
        return list(self._queued)

    def add(self, creation: Operation) -> None:
        """A new model, its creation first."""
        model_id = creation.model_id
        self._rotation.append(model_id)
        self._next_seq[model_id] = creation.seq_id
        self._queued[model_id] = {creation.seq_id: creation}

    def remove(self, model_id: str) -> list[Operation]:
        """Let go of a model; its commands that had not started, in order. None if it is gone."""
        if model_id not in self._queued:
            return []
        self._rotation.remove(model_id)
        del self._next_seq[model_id]
        queued = self._queued.pop(model_id)
        return [queued[seq_id] for seq_id in sorted(queued)]

    def submit(self, operation: Operation) -> None:
        """Queue a command until its turn. Raises `ConflictError` for a sequence id that was
        used before, `BusyError` at the bound."""
        queued = self._queued[operation.model_id]
        ahead = operation.seq_id - self._next_seq[operation.model_id]
        if ahead < 0 or operation.seq_id in queued:
            raise ConflictError(
                f"{operation.request_id} ran before and its result is no longer kept; "
                f"the next seq_id is {self._next_seq[operation.model_id] + len(queued)}"
            )
        if ahead >= MAX_QUEUED:
            raise BusyError(
                f"{operation.request_id} is {ahead} commands ahead of what runs next, and at most "
                f"{MAX_QUEUED} wait; poll for results before submitting more"
            )
        queued[operation.seq_id] = operation

    def next_batch(self, busy_lanes: Collection[str]) -> list[Operation]:
        """Take the commands to run together now: none if nothing can run. A command that ends on
        a persistence lane waits while that lane is busy."""
        batch: list[Operation] = []
        tokens = 0
        for model_id in self._rotation:
            operation = self._ready(model_id, busy_lanes)
            if operation is None:
                continue
            if not batch:
                batch.append(operation)
                tokens = operation.tokens
                if operation.kind is not Kind.FORWARD_BACKWARD:
                    break
            elif (
                operation.kind is Kind.FORWARD_BACKWARD
                and tokens + operation.tokens <= self._token_budget
            ):
                batch.append(operation)
                tokens += operation.tokens
        for operation in batch:
            del self._queued[operation.model_id][operation.seq_id]
            self._next_seq[operation.model_id] += 1
            self._rotation.remove(operation.model_id)
            self._rotation.append(operation.model_id)
        return batch

    def _ready(self, model_id: str, busy_lanes: Collection[str]) -> Operation | None:
        operation = self._queued[model_id].get(self._next_seq[model_id])
        if operation is None or operation.persistence_lane in busy_lanes:
            return None
        return operation
