"""The sidecar's readers of one model, as small as they can be: for tests of who gets what once."""

from __future__ import annotations

import itertools
import re
import threading
from collections import Counter
from collections.abc import Mapping

from support.timing_server import Answer, Request, error, ok, phase, timing

_RECORD = re.compile(r".*/r([0-9]+)\.execute\.count")


class ReaderModel:
    """Answers as a sidecar does after `record` calls, each of which is a phase of its own, so
    that it shows in an answer by name. Any thread."""

    def __init__(self, first_epoch: int = 0xA0) -> None:
        self._lock = threading.Lock()
        self._epochs = (f"{number:x}" for number in itertools.count(first_epoch))
        self.recorded = 0
        self._lose()

    def record(self) -> None:
        """The model has done one more thing."""
        with self._lock:
            self._records.append(self.recorded)
            self.recorded += 1

    def lose_state(self) -> None:
        """The sidecar died, and its figures and readers with it."""
        with self._lock:
            self._lose()

    def answer(self, request: Request) -> Answer:
        """What the contract says, without the bounds on readers."""
        reader, ack = request.query.get("reader"), request.query.get("ack")
        if reader is None and ack is not None:
            return error(400, "ack_without_reader")
        with self._lock:
            start = self._starts.get(reader, 0)
            acknowledged = 0 if ack is None else self._number(ack)
            if acknowledged is not None:
                start = max(start, acknowledged)
            end = None
            if request.query.get("reset") == "true":
                self._marks.append(len(self._records))
                end = len(self._marks) - 1
                self._starts[reader] = end if reader is None else start
            elif ack is not None:
                self._starts[reader] = start
            records = self._records[self._marks[start] :]
        return ok(
            timing(
                {f"r{record}.execute": phase(1, 1.0, 1.0) for record in records},
                delivery={"sent": len(records), "applied": len(records), "dropped": 0},
                interval={
                    "reader": reader,
                    "from": f"{self._epoch}.{start}",
                    "cursor": None if end is None or reader is None else f"{self._epoch}.{end}",
                    "complete": acknowledged is not None,
                    "final": False,
                },
                journal={"writing": True, "reason": None},
                step={"wall_s": 1.0, "client_s": 1.0, "since": 0.0, "until": 1.0},
            )
        )

    def _lose(self) -> None:
        self._epoch = next(self._epochs)
        self._records: list[int] = []
        self._marks = [0]
        """How many records there were, by the number of the mark."""
        self._starts: dict[str | None, int] = {}

    def _number(self, cursor: str) -> int | None:
        """Of a mark of this state; None of any other."""
        epoch, _, number = cursor.partition(".")
        return int(number) if epoch == self._epoch and int(number) < len(self._marks) else None


def records(metrics: Mapping[str, float]) -> Counter[int]:
    """How often each record is in these metrics."""
    found: Counter[int] = Counter()
    for name, value in metrics.items():
        if match := _RECORD.fullmatch(name):
            found[int(match[1])] += int(value)
    return found


def once_each(model: ReaderModel) -> Counter[int]:
    """What all that a reader got together should come to."""
    return Counter(range(model.recorded))
