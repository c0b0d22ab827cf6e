"""Readers of random histories: two trainers that are replaced, their common backend, a sidecar
that is killed, and answers that are lost."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from lilo_engine_hook import wire
from lilo_sidecar.core.cursor import Cursor
from lilo_sidecar.core.timing import Timing
from lilo_sidecar.web.query import TimingQuery
from support.feed import hello, span
from support.journaled import Client, Clock, open_recorder
from support.soak import rounds

STEPS = 120
EVERYBODY = None
MODELS = {"a": ("a0", "a1"), "b": ("b0", "b1")}


class Reader:
    """Adds up what it receives, and knows what it should have received."""

    def __init__(self, model: str | None, name: str | None) -> None:
        self.model = model
        self.name = name
        self.ack: Cursor | None = None
        self.received: Counter[str] = Counter()
        self.owed: set[str] = set()
        """Records that no answer had yet and no answer said to be missing."""

    def query(self) -> TimingQuery:
        return TimingQuery(self.model, True, self.name, self.ack)

    def take(self, answer: Timing) -> None:
        """It received the answer: nothing twice, and nothing left out but with a word."""
        for phase, timing in answer.phases.items():
            self.received[phase] += timing.count
        assert max(self.received.values(), default=0) <= 1, "given twice"
        missing = self.owed - set(self.received)
        begins = answer.interval.begin.endswith(".0")  # for whom it is the first it hears of it
        assert not missing or begins or not answer.interval.complete, missing
        self.owed.clear()
        if answer.interval.cursor is not None:
            self.ack = Cursor.parse(answer.interval.cursor)


class History:
    """What happens, one thing after the other. Every record is a phase of its own."""

    def __init__(self, path: Path, seed: int) -> None:
        self.random = Random(seed)
        self.path = path
        self.clock = Clock()
        self.recorder = open_recorder(path, self.clock)
        self.boots = 0
        self.records = 0
        self.engines = {name: self._engine(name) for name in MODELS}
        self.registered: dict[str, set[str]] = {name: set() for name in MODELS}
        self.backend = Client(hello("backend", role="backend"))
        self.backend.greet(self.recorder)
        targets = (EVERYBODY, *MODELS["a"], *MODELS["b"])
        self.readers = [Reader(model, name) for model in targets for name in (None, "x", "y")]

    def step(self) -> None:
        match self.random.randrange(15):
            case 0 | 1 | 2 | 3 | 4 | 5:
                self._work()
            case 6:
                self._work_of_backend()
            case 13:
                self._kill_sidecar()
            case 14 if self.random.randrange(3) == 0:
                self._replace_trainer("b")
            case _:
                self._read(self.random.choice(self.readers))

    def _engine(self, name: str) -> Client:
        self.boots += 1
        engine = Client(hello(f"{name}{self.boots}"))
        engine.greet(self.recorder)
        return engine

    def _record(self, model: str, lane: str) -> wire.Span:
        self.records += 1
        kind = f"op{self.records}"
        for reader in self.readers:
            if reader.model in (EVERYBODY, model):
                reader.owed.add(f"{kind}.execute")
        return span([model], self.records, self.records + 0.5, kind, lane=lane)

    def _work(self) -> None:
        engine = self.random.choice(list(MODELS))
        model = self.random.choice(MODELS[engine])
        events: list[wire.Event] = []
        if model not in self.registered[engine]:
            self.registered[engine].add(model)
            events.append(wire.Register(float(self.records), model))
        self.engines[engine].send(self.recorder, *events, self._record(model, "gpu"))

    def _work_of_backend(self) -> None:
        known = sorted(set().union(*self.registered.values()))
        if known:
            model = self.random.choice(known)
            self.backend.send(self.recorder, self._record(model, "device"))

    def _kill_sidecar(self) -> None:
        self.recorder.close()  # which writes nothing: a kill comes to the same
        self.recorder = open_recorder(self.path, self.clock)
        producers = [*self.engines.values(), self.backend]
        self.random.shuffle(producers)
        for producer in producers:
            producer.greet(self.recorder)

    def _replace_trainer(self, name: str) -> None:
        self.recorder.disconnect(self.engines[name].who.boot_id)
        self.engines[name] = self._engine(name)
        self.registered[name].clear()

    def _read(self, reader: Reader) -> None:
        answer = self.recorder.timing(reader.query())
        delivery = answer.delivery
        assert delivery.sent == delivery.applied + delivery.dropped + delivery.rejected
        assert min(delivery) >= 0
        if answer.step is not None:
            wall, *parts = answer.step[:7]
            assert sum(parts) == pytest.approx(wall, abs=1e-6)
        if reader.name is None or self.random.random() < 0.7:
            reader.take(answer)


@pytest.mark.parametrize("seed", range(rounds(60, soak=5000)))
def test_nobody_gets_anything_twice_and_every_hole_is_told(tmp_path: Path, seed: int) -> None:
    """Whatever becomes of the trainers, the sidecar and the answers."""
    history = History(tmp_path, seed)
    for _ in range(STEPS):
        history.step()
