"""A sidecar's core with its journal, without the sockets: producers and readers at random."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

from lilo_engine_hook import wire
from lilo_sidecar.core.cursor import Cursor
from lilo_sidecar.state.directory import StateDirectory
from lilo_sidecar.state.recorder import Recorder
from lilo_sidecar.state.recovery import recover
from lilo_sidecar.web.query import TimingQuery
from support.feed import hello, span
from support.schedule import events, random_schedule

READERS = (None, "loop", "other")


class Clock:
    """Seconds that pass with each look, so that every record has its own."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        self.now += 0.125
        return self.now


def open_recorder(path: Path, clock: Clock) -> Recorder:
    """As the daemon does at its start."""
    directory = StateDirectory(path)
    return Recorder(recover(directory, clock()), directory, clock)


def killed(recorder: Recorder) -> None:
    """As far as the next sidecar can tell: the lock is gone, and nothing else was done."""
    recorder._directory.close()  # type: ignore[union-attr]


class Client:
    """A producer of a recorder; it survives the recorder."""

    def __init__(self, who: wire.Hello) -> None:
        self.who = who
        self.sent = 0

    def greet(self, recorder: Recorder) -> None:
        """Connect, again perhaps."""
        recorder.connect(self.who, wire.encode(self.who)[4:])

    def send(self, recorder: Recorder, *sent: wire.Event, dropped: int = 0) -> int:
        """A batch; the number acknowledged."""
        packed = [wire.encode_event(event) for event in sent]
        payload = wire.encode_batch(self.sent + 1, dropped, 0, wire.join(packed))[4:]
        batch = wire.decode(payload)
        assert isinstance(batch, wire.Batch)
        self.sent += len(sent)
        return recorder.apply(self.who.boot_id, batch, payload)


def begun(path: Path) -> tuple[Recorder, Client]:
    """A sidecar with one span in its journal."""
    recorder, engine = open_recorder(path, Clock()), Client(hello())
    engine.greet(recorder)
    engine.send(recorder, span(["m"], 0, 1))
    return recorder, engine


def executions(recorder: Recorder) -> int:
    """The spans that were counted; 0 after a new beginning."""
    phase = recorder.timing(TimingQuery(None)).phases.get("forward_backward.execute")
    return 0 if phase is None else phase.count


def epoch(recorder: Recorder) -> str:
    """Of the state: another one after it began anew."""
    return recorder._core._epoch


class Traffic:
    """What a trainer with several models sends, and its readers ask, in random pieces."""

    def __init__(self, seed: int, size: int = 60) -> None:
        self.random = Random(seed)
        schedule = random_schedule(self.random, size)
        self.models = schedule.models()
        self.left = events(schedule, self.random)
        self.engine = Client(hello("engine"))
        self.backend = Client(hello("backend", role="backend"))
        self.cursors: dict[tuple[str | None, str], Cursor] = {}

    def greet(self, recorder: Recorder) -> None:
        """Both processes connect."""
        self.engine.greet(recorder)
        self.backend.greet(recorder)

    def step(self, recorder: Recorder) -> None:
        """One thing happens."""
        random = self.random
        model = random.choice([None, *self.models])
        match random.randrange(10):
            case 0:
                self.ask(recorder, model, random.choice(READERS))
            case 1:
                recorder.timing(TimingQuery(model))
            case 2 if model is not None:
                span = wire.Span((model,), "device:forward", "device", 1.0, 2.0, *[None] * 5)
                self.backend.send(recorder, span, dropped=random.randrange(3))
            case 3 if random.randrange(4) == 0:
                recorder.disconnect("engine")
                self.engine.greet(recorder)
            case _:
                size = random.randrange(1, 6)
                self.engine.send(recorder, *self.left[:size])
                del self.left[:size]

    def ask(self, recorder: Recorder, model: str | None, reader: str | None) -> None:
        """End an interval; one answer in three is lost."""
        key = (model, reader or "")
        ack = None if reader is None else self.cursors.get(key)
        answer = recorder.timing(TimingQuery(model, True, reader, ack))
        if answer.interval.cursor is not None and self.random.randrange(3):
            cursor = Cursor.parse(answer.interval.cursor)
            assert cursor is not None
            self.cursors[key] = cursor


def answers(recorder: Recorder, models: list[str]) -> str:
    """All that anybody could be told now, byte for byte."""
    clock = recorder._clock
    said = [
        recorder._core.timing(model, reset=False, now=5000.0, reader=reader).to_json()
        for model in (None, *models)
        for reader in READERS
    ]
    assert isinstance(clock, Clock)
    return json.dumps([*said, recorder._core.lifetime(5000.0).to_json()])
