"""A sidecar whose history goes fast, and a trainer's past to fill it with."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from lilo_engine_hook import wire
from support.feed import begin, finish, span
from support.producer import Producer
from support.sidecar import SidecarProcess, running, wait_until

_CODE = """
import sys
from lilo_sidecar.web import overview
overview.SAMPLE_INTERVAL = 0.05
overview.FRESH = 0.0
from lilo_sidecar.cli import main
sys.exit(main())
"""


@contextlib.contextmanager
def start_watched(
    tmp_path: Path, *arguments: str | Path, token: str | None = None
) -> Iterator[SidecarProcess]:
    """As `start_sidecar`; it looks at the totals twenty times a second, and an interval is as long
    as what is sent between two looks."""
    command = [sys.executable, "-P", "-c", _CODE, "serve", "--socket", tmp_path / "timing.sock"]
    process = subprocess.Popen(
        [*map(str, command), *map(str, arguments)],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with running(process, token) as sidecar:
        yield sidecar


class Past:
    """A trainer that tells of what its models did until now: batches of one to three of them, and
    a checkpoint now and then. The same every time, but for when it is."""

    def __init__(self, producer: Producer, models: Sequence[str], ago: float = 200.0) -> None:
        self.models = models
        self._producer = producer
        self._random = random.Random(5)
        self.now = time.time()
        self._t = self.now - ago
        self._seq = 0
        self._ready = {model: self._t + self._random.random() for model in models}
        producer.send(wire.Activity(self._t, "checkpoint", None, None, "save_weights"))
        for model in models:
            producer.send(wire.Register(self._t, model), span([model], self._t, self._t, "accept"))

    def tell(self, sidecar: SidecarProcess, step: float = 5.0) -> None:
        """All of it, in intervals of ``step`` seconds."""
        while self._t < self.now - 2.0:
            until = self._t + step
            while self._t < min(until, self.now - 2.0):
                self._batch()
            looked = sidecar.http.get("/api/v1/overview").json()["now"]
            wait_until(
                lambda since=looked: sidecar.http.get("/api/v1/overview").json()["now"] - since,  # type: ignore[misc]
                lambda passed: passed > 0.12,
            )

    def _batch(self) -> None:
        waiting = [model for model in self.models if self._ready[model] <= self._t]
        if not waiting:
            self._t = min(self._ready.values())
            return
        saves = self._random.random() < 0.06
        size = 1 if saves else min(len(waiting), self._random.randint(1, 3))
        batch = self._random.sample(waiting, size)
        kind = "save_weights" if saves else self._random.choice(_KINDS)
        self._seq += 1
        ids = [f"{model}:{self._seq}" for model in batch]
        events: list[wire.Event] = [
            begin(model, self._seq, self._ready[model], kind) for model in batch
        ]
        start = self._t + self._random.choice((0.01, 0.02, 0.2))
        end = start + self._random.uniform(0.2, 0.9) * (2.5 if self.models[0] in batch else 1.0)
        name = f"capture:{kind}" if saves else kind
        events.append(span(batch, start, end, name, ids=ids, n=size, ok=True))
        done = end + 0.01
        if saves:
            done = end + 1.5
            persist = span(batch, end, done, f"persist:{kind}", ids=ids, n=1, lane="checkpoint")
            events.append(persist)
        for model in batch:
            events.append(finish(model, self._seq, done))
            lazy = 2.5 if model == self.models[-1] else 0.4
            self._ready[model] = done + self._random.random() * lazy
        self._producer.send(*events)
        self._t = end


_KINDS = ("forward_backward", "forward_backward", "forward_backward", "optim_step", "forward")
