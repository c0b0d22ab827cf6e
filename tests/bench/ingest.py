"""What the sidecar pays for each event: a real one, attribution and journal on."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgpack

from bench.floors import reading_stages
from bench.machine import cpu_seconds, pin_here, pin_there
from bench.measure import Bound, Results, compared, interleaved
from bench.traffic import EVENTS_PER_COMMAND, Sender, Traffic
from support.sidecar import SidecarProcess, start_sidecar

MANY_MODELS, MANY_KINDS = 256, 10
"""256 models of 20 phases: a wait and an execution of each kind."""


class Feed:
    """A sidecar on the other core, and the traffic for it."""

    def __init__(self, sidecar: SidecarProcess, traffic: Traffic, commands: int) -> None:
        self._pid = sidecar.process.pid
        pin_there(self._pid)
        self._traffic = traffic
        self._commands = commands
        self._sender = Sender(sidecar.socket)
        self.sent: Sequence[bytes] = ()
        """The frames of the last round."""

    def fill(self) -> None:
        """Have every model and phase there."""
        models, kinds = MANY_MODELS, MANY_KINDS
        self._sender.send(self._sender.pack(self._traffic.events(models * kinds)))

    def events_per_second(self) -> float:
        """That one core takes in: what was sent, by the CPU time that the sidecar spent on it."""
        self.sent = self._sender.pack(self._traffic.events(self._commands))
        before = cpu_seconds(self._pid)
        self._sender.send(self.sent)
        return EVENTS_PER_COMMAND * self._commands / (cpu_seconds(self._pid) - before)


def figures(quick: bool) -> Results:
    """One model and many, and the least that reading the same bytes can cost."""
    rounds, commands = (2, 500) if quick else (21, 6000)
    with (
        tempfile.TemporaryDirectory() as first,
        tempfile.TemporaryDirectory() as second,
        start_sidecar(Path(first)) as sidecar,
        start_sidecar(Path(second)) as crowded,
    ):
        pin_here()
        one = Feed(sidecar, Traffic(), commands)
        many = Feed(crowded, Traffic(MANY_MODELS, MANY_KINDS), commands)
        many.fill()
        found = interleaved(
            rounds,
            {
                "one": one.events_per_second,
                "decoded": lambda: _decoded_per_second(one.sent, commands),
                "many": many.events_per_second,
            },
        )
        assert crowded.health()["faults"] == 0
    return Results(
        [
            compared(
                "sidecar ingest, 1 model",
                "events/s",
                found["one"],
                "decoding the same bytes with msgpack, nothing else",
                found["decoded"],
                Bound("ratio", "at least", 0.20),
                note="by the sidecar's CPU time",
            ),
            compared(
                f"sidecar ingest, {MANY_MODELS} models of {2 * MANY_KINDS} phases",
                "events/s",
                found["many"],
                "1 model",
                found["one"],
                Bound("ratio", "at least", 0.8),
            ),
            *reading_stages(one.sent, EVENTS_PER_COMMAND * commands, rounds),
        ]
    )


def _decoded_per_second(frames: Sequence[bytes], commands: int) -> float:
    began = time.process_time()
    for frame in frames:
        msgpack.unpackb(memoryview(frame)[4:], use_list=False)
    return EVENTS_PER_COMMAND * commands / (time.process_time() - began)
