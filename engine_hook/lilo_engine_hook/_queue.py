"""Where observer calls leave their events: the only thing shared with the engine's threads."""

from __future__ import annotations

import logging
from collections import deque
from typing import Final, TypeAlias

from . import wire
from ._counter import AtomicCounter
from ._plain import plain

MAX_EVENTS: Final = 65_536
"""Events held in all, queued or packed: minutes of a busy trainer, about 10 MiB."""

Item: TypeAlias = tuple[object, ...]
"""An event class, then its fields as the engine passed them: unchecked."""

_log = logging.getLogger("lilo_engine_hook")


class EventQueue:
    """A bounded queue from the engine's threads to the sender's thread.

    The engine's side is two lines in each observer call: append to ``items`` while it is
    shorter than ``room``. Both are plain attributes so that this costs no call. ``room`` is
    set by the sender's thread; zero turns every event away.
    """

    __slots__ = ("_names", "_warned", "closed", "dropped", "items", "rejected", "room")

    def __init__(self, room: int = 0) -> None:
        self.items: deque[Item] = deque()
        self.room = room
        self.dropped = AtomicCounter()
        """Events turned away at the bound."""
        self.rejected = AtomicCounter()
        """Calls whose arguments make no event."""
        self.closed = False
        """Set to turn away everything from now on."""
        self._names = wire.NameBudget()
        self._warned = False

    def take(self, held_events: int, byte_limit: int) -> list[bytes]:
        """Move events out and pack them, until none is left or ``byte_limit`` is reached;
        ``held_events`` wait elsewhere already and count against `MAX_EVENTS`. The sender's
        thread only. Never raises for what the engine passed: that is rejected."""
        items = self.items
        packed: list[bytes] = []
        size = 0
        for _ in range(len(items)):
            # What was moved out still takes up room.
            self.room = 0 if self.closed else MAX_EVENTS - held_events - len(packed) - 1
            item = items.popleft()
            try:
                event = wire.encode_event(self._checked(item))
            except Exception as error:  # noqa: BLE001 - arbitrary objects run arbitrary code here
                self.reject(error)
                continue
            packed.append(event)
            size += len(event)
            if size >= byte_limit:
                self.room = 0
                return packed
        self.room = 0 if self.closed else MAX_EVENTS - held_events - len(packed)
        return packed

    def reject(self, reason: object) -> None:
        """Count a call that makes no event; the first one is logged."""
        self.rejected.add()
        if not self._warned:
            self._warned = True
            _log.warning(
                "an observer call was rejected: %s; "
                "further ones are only counted (delivery.rejected in the timing answer)",
                str(reason)[:300],
            )

    def _checked(self, item: Item) -> wire.Event:
        kind, *fields = item
        event = wire.parse_event(kind, [plain(field) for field in fields])  # type: ignore[arg-type]
        self._names.spend(event)
        return event
