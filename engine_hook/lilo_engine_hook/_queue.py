"""Where observer calls leave their events: the only thing shared with the engine's threads."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from . import wire
from ._counter import AtomicCounter
from ._plain import plain
from .wire.checks import amount

MAX_EVENTS: Final = 65_536
"""Events held in all, queued or packed: minutes of a busy trainer, about 10 MiB."""

_BATCH_BYTES: Final = wire.MAX_FRAME - wire.MAX_EVENT_BYTES - 64
"""A batch closes at this size: one more event of any size, and the head, still fit the frame."""

_WITH_KINDS: Final = (wire.BEGIN, wire.ACTIVITY)

Item: TypeAlias = tuple[Any, ...]
"""The number of an event's kind, then its fields as the engine passed them: unchecked."""

Weigh: TypeAlias = Callable[[Any], float]
"""From an operation's payload to its weight within a batch, such as its tokens."""

_log = logging.getLogger("lilo_engine_hook")


class EventQueue:
    """A bounded queue from the engine's threads to the sender's thread.

    The engine's side is two lines in each observer call: append to ``items`` while it is
    shorter than ``room``. Both are plain attributes so that this costs no call. ``room`` is
    set by the sender's thread; zero turns every event away.
    """

    __slots__ = (
        "_names",
        "_packer",
        "_reason",
        "_warned",
        "_weigh",
        "closed",
        "dropped",
        "items",
        "rejected",
        "room",
        "unweighed",
    )

    def __init__(self, weigh: Weigh | None = None) -> None:
        """With ``weigh``, the last field of a `wire.Begin` item is the operation's payload."""
        self.items: deque[Item] = deque()
        self.room = 0
        self.dropped = AtomicCounter()
        """Events turned away at the bound."""
        self.rejected = AtomicCounter()
        """Calls whose arguments make no event."""
        self.closed = False
        """Set to turn away everything from now on."""
        self.unweighed = 0
        """Commands that ``weigh`` failed for; they weigh one."""
        self._weigh = weigh
        self._names = wire.NameBudget()
        self._packer = wire.EventPacker()
        self._reason: object = None
        self._warned = False

    def take(self, held_events: int, byte_limit: int) -> list[wire.Packed]:
        """Move every event out and pack it, in batches; ``held_events`` wait elsewhere already and
        count against `MAX_EVENTS`. After the batch, or the large event, that reaches
        ``byte_limit`` they are dropped: it is passed by 128 KiB at most. The sender's thread only.
        Never raises for what the engine passed: that is rejected."""
        items = self.items
        packed: list[wire.Packed] = []
        size = 0
        left = len(items)
        while left and size < byte_limit:
            count = min(left, wire.MAX_EVENTS_PER_BATCH)
            left -= count
            taken = []
            for moved in range(1, count + 1):
                # What is moved out still takes up room. Said for each by itself: said for all of
                # them first, a batch of others would be turned away while there is room for it.
                self.room = 0 if self.closed else MAX_EVENTS - held_events - moved
                taken.append(items.popleft())
            for batch in self._batches(taken, byte_limit - size):
                packed.append(batch)
                held_events += batch.events
                size += len(batch.array)
        if size >= byte_limit:
            # What is still queued would have to wait here, and its payloads with it.
            self.room = 0
            while items:
                items.popleft()
                self._drop(1)
        else:
            self.room = 0 if self.closed else MAX_EVENTS - held_events
        return packed

    def reject(self, reason: object) -> None:
        """Count a call that makes no event. Any thread; the reason of the first one is kept for
        the sender's thread to log, since a log may block."""
        self.rejected.add()
        if not self._warned and self._reason is None:
            if isinstance(reason, BaseException):
                # Its frames hold what the engine passed, payloads among it. Past its own class,
                # which may refuse: a frozen dataclass does.
                for attribute in ("__traceback__", "__context__", "__cause__"):
                    BaseException.__setattr__(reason, attribute, None)
            self._reason = reason

    def explain(self) -> None:
        """The sender's thread: log the first rejection there was."""
        if self._reason is not None and not self._warned:
            self._warned = True
            _log.warning(
                "an observer call was rejected: %s; "
                "further ones are only counted (delivery.rejected in the timing answer)",
                text_of(self._reason),
            )
            self._reason = None

    def _drop(self, events: int) -> None:
        for _ in range(events):
            self.dropped.add()

    def _batches(self, items: list[Item], byte_limit: int) -> list[wire.Packed]:
        """The events of at most `wire.MAX_EVENTS_PER_BATCH` items: in one batch, unless some of
        them are wrong or large. Those beyond ``byte_limit`` are dropped."""
        made = []
        for item in items:
            try:
                made.append(self._made(item) if item[0] in _WITH_KINDS else item)
            except BaseException as error:  # noqa: BLE001 - the engine's objects run their code here
                self.reject(error)
        try:
            names = wire.plain_names(made)
            if names is not None and self._names.admits(names):
                batch = self._packer.pack_plain(made)
                if batch is not None:
                    return [batch]
        except BaseException:  # noqa: BLE001, S110 - the engine's objects; said below of which it is
            pass
        return self._one_by_one(made, byte_limit)

    def _one_by_one(self, items: list[Item], byte_limit: int) -> list[wire.Packed]:
        """What is right of these, and a rejection for each of the others."""
        batches: list[wire.Packed] = []
        packed: list[bytes] = []
        size = 0
        for place, item in enumerate(items):
            try:
                fields = tuple([plain(field) for field in item[1:]])
                event = wire.parse_event(wire.KINDS[item[0]], fields)
                self._names.spend(event)
                packed.append(self._packer.pack(event))
            except BaseException as error:  # noqa: BLE001 - the engine's objects run their code here
                self.reject(error)
                continue
            size += len(packed[-1])
            if size >= min(_BATCH_BYTES, byte_limit):
                batches += self._joined(packed)
                byte_limit -= size
                packed, size = [], 0
            if byte_limit <= 0:
                self._drop(len(items) - place - 1)
                break
        return batches + self._joined(packed)

    def _joined(self, packed: list[bytes]) -> list[wire.Packed]:
        """One batch of them, if there are any and there is memory for it."""
        try:
            return [wire.join(packed)] if packed else []
        except MemoryError:
            self._drop(len(packed))
            return []

    def _made(self, item: Item) -> Item:
        """With its kind as a string, engines' kinds being enums, and its weight for the payload."""
        if item[0] == wire.ACTIVITY:
            kind = item[-1]
            return item if kind is None or type(kind) is str else (*item[:-1], plain(kind))
        number, t, model, request_id, seq, kind, payload = item
        if type(kind) is not str:
            kind = plain(kind)
        weight = None if self._weigh is None else self._weight(self._weigh, payload)
        return (number, t, model, request_id, seq, kind, weight)

    def _weight(self, weigh: Weigh, payload: object) -> float | None:
        try:
            return amount(plain(weigh(payload)), "a weight")
        except BaseException as error:  # noqa: BLE001 - the engine's function, even if it exits
            if not self.unweighed:
                _log.warning(
                    "weighing a payload failed: %s; such commands weigh one and are counted "
                    "(delivery.unweighed in the timing answer)",
                    text_of(error),
                )
            self.unweighed += 1
            return None


def text_of(reason: object) -> str:
    """What to log of it, whatever it is."""
    try:
        return str(reason)[:300]
    except BaseException:  # noqa: BLE001 - an engine's own exception
        return type(reason).__name__
