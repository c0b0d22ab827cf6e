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

    __slots__ = ("dropped", "items", "rejected", "room", "warned")

    def __init__(self, room: int = 0) -> None:
        self.items: deque[Item] = deque()
        self.room = room
        self.dropped = AtomicCounter()
        """Events turned away at the bound."""
        self.rejected = AtomicCounter()
        """Calls whose arguments make no event."""
        self.warned = False

    def take(self, packed_events: int) -> list[bytes]:
        """Move everything queued out and pack it; ``packed_events`` are held elsewhere already.
        The sender's thread only. Never raises for what the engine passed: that is rejected."""
        items = self.items
        count = len(items)
        # What is moved stays accounted for in `room` while it is in neither place.
        self.room = MAX_EVENTS - packed_events - count
        packed: list[bytes] = []
        for _ in range(count):
            item = items.popleft()
            try:
                packed.append(wire.encode_event(self._checked(item)))
            except Exception as error:  # noqa: BLE001 - arbitrary objects run arbitrary code here
                self.reject(error)
        self.room = MAX_EVENTS - packed_events - len(packed)
        return packed

    def reject(self, reason: object) -> None:
        """Count a call that makes no event; the first one is logged."""
        self.rejected.add()
        if not self.warned:
            self.warned = True
            _log.warning(
                "an observer call was rejected: %s; "
                "further ones are only counted (delivery.rejected in the timing answer)",
                str(reason)[:300],
            )

    def _checked(self, item: Item) -> wire.Event:
        kind, *fields = item
        return wire.parse_event(kind, [plain(field) for field in fields])  # type: ignore[arg-type]
