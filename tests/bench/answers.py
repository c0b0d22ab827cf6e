"""How long an answer takes: of an idle sidecar, and of one that takes events in."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.getter import Getter
from bench.machine import cpu_seconds, pin_here, pin_there
from bench.measure import Bound, Curve, Figure, Line, Ratio, Results, Spread, compared, percentile
from bench.traffic import EVENTS_PER_COMMAND, Sender, Traffic
from support.sidecar import SidecarProcess, start_sidecar

FULL_PACE = 50_000
"""Events per second of 2,500 trainers that run five commands a second."""
_PACES = (1_000, 5_000, 10_000, 20_000, 50_000)
_SEND_EVERY = 0.04
"""Seconds between two batches: the hook's own."""
_REQUESTS = 50
"""Of each contestant in a round."""


def figures(quick: bool) -> Results:
    """Idle and busy."""
    with tempfile.TemporaryDirectory() as directory, start_sidecar(Path(directory)) as sidecar:
        pin_here()
        pin_there(sidecar.process.pid)
        sender, traffic = Sender(sidecar.socket), Traffic(models=8, kinds=4)
        sender.send(sender.pack(traffic.events(2000)))
        results = Results(_idle(sidecar, Path(directory), 2 if quick else 40))
        _busy(results, sidecar, sender, traffic, quick=quick)
        return results


def _idle(sidecar: SidecarProcess, directory: Path, rounds: int) -> list[Figure]:
    getter = Getter(sidecar.url)
    with _constant(directory / "body", getter.get()) as (url, pid):
        constant = Getter(url)
        ours, theirs = _Asked(sidecar.process.pid), _Asked(pid)
        for _ in range(rounds):
            with ours.round(), theirs.round():
                for _ in range(_REQUESTS):
                    # One after the other: what else the machine does meets both.
                    ours.took.append(getter.milliseconds())
                    theirs.took.append(constant.milliseconds())
        constant.close()
    getter.close()
    compared_with = "a constant of the same size from the same server"
    return [
        compared(
            "GET for one model, idle, p50",
            "ms",
            ours.medians,
            compared_with,
            theirs.medians,
            Bound("ratio", "at most", 1.5),
        ),
        compared("… by the server's CPU time", "ms", ours.cpu, compared_with, theirs.cpu),
    ]


class _Asked:
    """What a server's answers took, and what they cost it."""

    def __init__(self, pid: int) -> None:
        self.medians: list[float] = []
        self.cpu: list[float] = []
        """Milliseconds for each answer, one entry a round."""
        self.took: list[float] = []
        self._pid = pid

    @contextlib.contextmanager
    def round(self) -> Iterator[None]:
        """`_REQUESTS` answers, to be added to ``took``."""
        self.took.clear()
        spent = cpu_seconds(self._pid)
        yield
        self.cpu.append(1000 * (cpu_seconds(self._pid) - spent) / _REQUESTS)
        self.medians.append(percentile(self.took, 50))


@contextlib.contextmanager
def _constant(file: Path, body: bytes) -> Iterator[tuple[str, int]]:
    """The URL and the process of a server that answers with ``body``."""
    file.write_bytes(body)
    command = [sys.executable, "-m", "bench.constant", str(file)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        pin_there(process.pid)
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield process.stdout.readline().strip(), process.pid
        finally:
            process.stdin.close()


def _busy(
    results: Results, sidecar: SidecarProcess, sender: Sender, traffic: Traffic, *, quick: bool
) -> None:
    seconds, rounds = (0.3, 1) if quick else (3.0, 3)
    idle: list[float] = []
    busy: list[float] = []
    taken: list[float] = []
    for _ in range(rounds):
        idle.append(percentile(_ask_for(sidecar.url, seconds), 99))
        samples, pace = _ask_while_sending(sidecar.url, sender, traffic, FULL_PACE, seconds)
        busy.append(percentile(samples, 99))
        taken.append(pace)
    results.figures.append(
        Figure(
            f"GET for one model while {FULL_PACE:,} events/s are sent, p99",
            "ms",
            Spread.of(busy),
            "idle, p99",
            Spread.of(idle),
            Ratio.of(busy, idle),
            (Bound("ratio", "at most", 3),),
            note=f"{Spread.of(taken).median:,.0f} events/s were taken in",
        )
    )
    median, latency, load = Line("p50", []), Line("p99", []), Line("the sidecar", [])
    for pace in _PACES[:2] if quick else _PACES:
        samples, _ = _ask_while_sending(sidecar.url, sender, traffic, pace, seconds / 2)
        median.points.append((pace, percentile(samples, 50)))
        latency.points.append((pace, percentile(samples, 99)))
        load.points.append((pace, _load_of(sidecar, sender, traffic, pace, seconds / 3)))
    results.curves += [
        Curve(
            "answer-load",
            "An answer while events are taken in",
            "events offered per second",
            "ms",
            [median, latency],
            logarithmic=True,
        ),
        Curve(
            "sidecar-load",
            "The sidecar's CPU time while nobody asks",
            "events offered per second",
            "% of a core",
            [load],
        ),
    ]


def _load_of(
    sidecar: SidecarProcess, sender: Sender, traffic: Traffic, pace: int, seconds: float
) -> float:
    """Percent of a core."""
    frames = _batches(sender, traffic, pace, seconds)
    spent, began = cpu_seconds(sidecar.process.pid), time.monotonic()
    _send_paced(sender, frames, seconds)
    spent = cpu_seconds(sidecar.process.pid) - spent
    return 100 * spent / (time.monotonic() - began)


def _ask_for(url: str, seconds: float) -> list[float]:
    getter, until, samples = Getter(url), time.monotonic() + seconds, list[float]()
    while time.monotonic() < until:
        samples.append(getter.milliseconds())
        time.sleep(0.001)
    getter.close()
    return samples


def _ask_while_sending(
    url: str, sender: Sender, traffic: Traffic, pace: int, seconds: float
) -> tuple[list[float], float]:
    """The answers' times; the events per second that were taken in meanwhile."""
    frames = _batches(sender, traffic, pace, seconds)
    took: list[float] = []
    thread = threading.Thread(
        target=lambda: took.append(_send_paced(sender, frames, seconds)), daemon=True
    )
    thread.start()
    samples = _ask_for(url, seconds)
    thread.join()
    return samples, pace * seconds / took[0]


def _batches(sender: Sender, traffic: Traffic, pace: int, seconds: float) -> list[bytes]:
    commands = int(pace * seconds) // EVENTS_PER_COMMAND
    return sender.pack(traffic.events(commands))


def _send_paced(sender: Sender, frames: Sequence[bytes], seconds: float) -> float:
    """Send evenly over so many seconds, as hooks do: what has come together by each look into
    the queue. How many it took until all was applied."""
    began = time.monotonic()
    looks = max(1, round(seconds / _SEND_EVERY))
    for look in range(looks):
        time.sleep(max(0.0, began + seconds * (look + 1) / looks - time.monotonic()))
        sender.post(frames[len(frames) * look // looks : len(frames) * (look + 1) // looks])
    sender.wait()
    return time.monotonic() - began
