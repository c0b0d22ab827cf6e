"""Who reports, for a trace: processes, the trainers that they are of, and what those have not
finished. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from lilo_engine_hook import wire

from ..core.activity import Activities
from ..core.lanes import GPU
from .tracks import Entry, Group, thread_numbers

_ROLES: Final = {wire.Role.ENGINE: "trainer", wire.Role.BACKEND: "backend"}


@dataclass(slots=True)
class TracedCommand:
    """From its submission to its finish."""

    request_id: str
    kind: str
    submitted: float
    """Unix seconds."""
    row: int | None
    """Of its model's track; None if there was none."""
    started: bool = False


class Change(NamedTuple):
    """Of the number of commands that wait."""

    t: float
    by: int


@dataclass(slots=True)
class TracedTrainer:
    """An engine's process, with the children that it forked."""

    models: Group
    pending: dict[str, dict[str, TracedCommand]] = field(default_factory=dict)
    """By model and request."""
    changes: list[Change] = field(default_factory=list)


@dataclass(slots=True)
class TracedProcess:
    """One process that reports."""

    lanes: Group
    trainer: TracedTrainer
    hello: wire.Hello | None = None
    """None if it said it before the journals begin."""
    working: Activities = field(default_factory=Activities)
    gone: float | None = None
    """When its connection ended, if it has none."""

    @property
    def name(self) -> str:
        """For people. Of one that connected before the journals begin, no more is known than what
        it does."""
        if self.hello is not None:
            return f"{_ROLES[self.hello.role]} {self.hello.pid}"
        engine = GPU in self.lanes.tracks or self.trainer.models.tracks
        return "the trainer" if engine else "a backend"


class TracedProcesses:
    """All that were heard."""

    def __init__(self) -> None:
        self._processes: dict[str, TracedProcess] = {}
        """By boot id."""
        self._trainers: dict[str, TracedTrainer] = {}
        """By the boot id of the process that began it."""
        self._threads = thread_numbers()
        self._groups = 0

    @property
    def all(self) -> Collection[TracedProcess]:
        """In the order in which they were heard first."""
        return self._processes.values()

    @property
    def trainers(self) -> Collection[TracedTrainer]:
        """Likewise; one of each backend, too, which has no models."""
        return self._trainers.values()

    def get(self, boot_id: str, hello: wire.Hello | None) -> TracedProcess:
        """The process of that boot, which may be heard for the first time."""
        process = self._processes.get(boot_id)
        if process is None:
            root = (hello.parent_boot_id if hello is not None else None) or boot_id
            lanes = self._group()
            trainer = self._trainers.get(root)
            if trainer is None:
                trainer = self._trainers[root] = TracedTrainer(self._group())
            process = self._processes[boot_id] = TracedProcess(lanes, trainer)
        if hello is not None:
            process.hello = hello
        return process

    def end_of(self, trainer: TracedTrainer, until: float) -> float:
        """When the last of a trainer's processes was gone; ``until`` if one is there."""
        gone = [process.gone for process in self.all if process.trainer is trainer]
        return max(until if t is None else t for t in gone)

    def names(self) -> Iterator[Entry]:
        """What all tracks are called."""
        for process in self.all:
            if process.lanes.tracks:
                yield from process.lanes.names(f"lanes of {process.name}")
        for boot_id, trainer in self._trainers.items():
            if trainer.models.tracks:
                root = self._processes.get(boot_id)
                name = "the trainer" if root is None else root.name
                yield from trainer.models.names(f"models of {name}")

    def _group(self) -> Group:
        self._groups += 1
        return Group(self._groups, self._threads)
