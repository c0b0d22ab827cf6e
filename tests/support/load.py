"""A trainer under load: a program that reports through a real hook and counts what it reported.

    python -m support.load SOCKET OPTIONS

OPTIONS is the JSON of an `Options`. Its threads run batches at a pace until told to stop. It obeys
the lines on its stdin (see `_VERBS`) and answers each with a line on stdout, the JSON of
everything called so far. Every call of the observer is timed.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import subprocess
import sys
import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from lilo_engine_hook import TimingObserver, _producer
from support.operations import Operation

KIND = "forward_backward"
FLUSH_TIMEOUT = 10.0
"""Seconds that each process gets at its end to deliver what is left: a busy machine is no failure,
and what is lost then is another test's."""
CHILD_BATCHES = 50
"""What each process that a verb starts reports before it ends."""


@dataclass
class Options:
    """What the load is like. ``pace`` is batches per second and thread: a real trainer's calls
    come with work in between, and calls that contend for the interpreter's lock would measure
    that lock. A batch has a command of each of two models (of one, if there is only one)."""

    models: int = 4
    threads: int = 2
    pace: float = 250.0
    batches: int | None = None
    """Report so many from the main thread, close, and end, without a word on stdin."""
    clock: str = "steady"
    """``stepped``: the wall clock is set back and forth, every few calls."""
    descriptors: bool = True
    """False: there are none left until the verb ``descriptors``."""


@dataclass
class Tally:
    """What one thread called, and how long each call took: in wall time, in which the machine's
    other work is as well, and in time on a processor."""

    calls: Counter[str] = field(default_factory=Counter)
    phases: dict[str, Counter[str]] = field(default_factory=dict)
    """By model (``*``: all), how many records of each phase a sidecar should have."""
    wall: array[int] = field(default_factory=lambda: array("q"))
    cpu: array[int] = field(default_factory=lambda: array("q"))

    def call(self, method: Callable[..., None], *arguments: Any, **named: Any) -> None:
        """One observer call."""
        cpu, wall = time.thread_time_ns(), time.perf_counter_ns()
        method(*arguments, **named)
        self.wall.append(time.perf_counter_ns() - wall)
        self.cpu.append(time.thread_time_ns() - cpu)
        self.calls[method.__name__] += 1

    def expect(self, models: list[str], phase: str) -> None:
        """One record of each model, and one of all together."""
        for model in ("*", *models):
            self.phases.setdefault(model, Counter())[phase] += 1

    def add(self, other: Tally) -> None:
        self.calls += other.calls
        for model, phases in other.phases.items():
            self.phases.setdefault(model, Counter()).update(phases)
        self.wall += other.wall
        self.cpu += other.cpu

    def report(self) -> dict[str, Any]:
        return {
            "calls": sum(self.calls.values()),
            "by_call": self.calls,
            "phases": self.phases,
            "latency": {"wall": _percentiles(self.wall), "cpu": _percentiles(self.cpu)},
        }


def _percentiles(nanoseconds: array[int]) -> dict[str, float]:
    """In microseconds."""
    if not nanoseconds:
        return {}
    ordered = sorted(nanoseconds)
    return {
        "p50": ordered[len(ordered) // 2] / 1000,
        "p99.9": ordered[int(len(ordered) * 0.999)] / 1000,
        "max": ordered[-1] / 1000,
    }


class SteppedClock:
    """Unix seconds of a machine whose clock is set back and forth by up to an hour, but not
    before the models are there."""

    _OFFSETS = (0.0, -0.5, 3600.0, -3600.0, 0.0, 5.0, -86.4)

    def __init__(self) -> None:
        self._calls = itertools.count()

    def __call__(self) -> float:
        return time.time() + self._OFFSETS[next(self._calls) // 23 % len(self._OFFSETS)]


class Load:
    """The engine that is played."""

    def __init__(self, socket: str, options: Options) -> None:
        self.options = options
        self.clock = SteppedClock() if options.clock == "stepped" else time.time
        self.socket = socket
        if not options.descriptors:
            self._take_descriptors()
        self.observer = TimingObserver(socket, clock=self.clock)
        self.tally = Tally()
        """Of the main thread, and of those that ended."""
        self._seq = itertools.count()
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(number,)) for number in range(options.threads)
        ]
        self._tallies = [Tally() for _ in self._threads]

    def register(self, tally: Tally, models: list[str]) -> None:
        for model in models:
            tally.call(self.observer.register_model, model)
            t0 = self.clock()
            tally.call(self.observer.span, [model], "accept", "gpu", t0)
            tally.expect([model], "accept.execute")
            tally.expect([model], "accept.queue_wait")

    def start(self) -> None:
        models = [f"m-{number}" for number in range(self.options.models)]
        self.register(self.tally, models)
        for thread in self._threads:
            thread.start()

    def _run(self, number: int) -> None:
        tally, models = self._tallies[number], self.options.models
        due = time.monotonic()
        for turn in itertools.count(number):
            first = f"m-{turn % models}"
            self.batch(tally, list(dict.fromkeys((first, f"m-{(turn + 1) % models}"))))
            due += 1 / self.options.pace
            if self._stop.wait(max(0.0, due - time.monotonic())):
                return

    def batch(self, tally: Tally, models: list[str]) -> None:
        """A command of each model, in one batch."""
        observer = self.observer
        commands = [Operation(model, next(self._seq), KIND) for model in models]
        for command in commands:
            tally.call(observer.begin, command)
        tally.call(observer.state, models, f"executing:{KIND}")
        t0 = self.clock()
        ids = [command.request_id for command in commands]
        tally.call(observer.span, models, KIND, "gpu", t0, request_ids=ids, n=len(ids))
        for command in commands:
            tally.call(observer.finish, command, "done")
            tally.expect([command.model_id], f"{KIND}.queue_wait")
        tally.expect(models, f"{KIND}.execute")

    # --- verbs ------------------------------------------------------------------------------

    def stop(self) -> None:
        """Let every thread come to the end of its batch."""
        self._stop.set()
        for thread, tally in zip(self._threads, self._tallies, strict=True):
            thread.join()
            self.tally.add(tally)
        self._threads, self._tallies = [], []

    def burst(self, count: str, model: str = "burst") -> None:
        """Spans, far more than a trainer has; with pauses, in which the hook's thread works."""
        for number in range(int(count)):
            if number % 1000 == 0:
                time.sleep(0.005)
            self.tally.call(self.observer.span, [model], KIND, "gpu", 10.0, 11.0)
            self.tally.expect([model], f"{KIND}.execute")

    def fork(self) -> None:
        """A child that reports for itself."""
        self._fork(self._end_at_once)

    def fork_from_thread(self) -> None:
        """Likewise, from a thread that is not the main one."""
        thread = threading.Thread(target=self.fork)
        thread.start()
        thread.join()

    def fork_and_exit(self) -> None:
        """Likewise; it ends as any Python program does, handlers and all."""
        self._fork(sys.exit)

    def fork_and_exec(self) -> None:
        """A program that is a trainer of its own."""
        self._fork(None)

    def spawn(self) -> None:
        """Likewise, started by subprocess, which may vfork."""
        self._add(json.loads(subprocess.run(self._program(), stdout=subprocess.PIPE).stdout))

    def give_descriptors(self) -> None:
        """There are enough again."""
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    def _take_descriptors(self) -> None:
        free = os.dup(0)
        os.close(free)
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))

    def _fork(self, end: Callable[[], object] | None) -> None:
        """Run a child (without ``end``: another program) and count what it reported."""
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0 and end is None:
            os.dup2(writing, 1)
            os.execv(sys.executable, self._program())
        if pid == 0 and end is not None:
            tally = self.alone(f"child-{os.getpid()}", CHILD_BATCHES)
            os.write(writing, json.dumps(tally.report()).encode())
            end()
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            self._add(json.loads(pipe.read()))
        assert os.waitpid(pid, 0)[1] == 0

    def _end_at_once(self) -> None:
        self.observer.close()
        os._exit(0)

    def alone(self, model: str, batches: int) -> Tally:
        """The load of one model, from this thread, as fast as it goes."""
        tally = Tally()
        self.register(tally, [model])
        for _ in range(batches):
            self.batch(tally, [model])
        return tally

    def _program(self) -> list[str]:
        options = asdict(Options(threads=0, models=0, batches=CHILD_BATCHES))
        return [sys.executable, "-m", "support.load", self.socket, json.dumps(options)]

    def _add(self, report: dict[str, Any]) -> None:
        phases = {model: Counter(counts) for model, counts in report["phases"].items()}
        self.tally.add(Tally(Counter(report["by_call"]), phases))


_VERBS: dict[str, Callable[..., None]] = {
    "stop": Load.stop,
    "burst": Load.burst,
    "fork": Load.fork,
    "fork-from-thread": Load.fork_from_thread,
    "fork-and-exit": Load.fork_and_exit,
    "spawn": Load.spawn,
    "fork-and-exec": Load.fork_and_exec,
    "descriptors": Load.give_descriptors,
}


def main() -> None:
    _producer.FLUSH_TIMEOUT = FLUSH_TIMEOUT  # type: ignore[misc]
    load = Load(sys.argv[1], Options(**json.loads(sys.argv[2])))
    if load.options.batches is not None:
        tally = load.alone(f"program-{os.getpid()}", load.options.batches)
        load.observer.close()
        print(json.dumps(tally.report()), flush=True)
        return
    load.start()
    print("started", flush=True)
    for line in sys.stdin:
        verb, *arguments = line.split()
        _VERBS[verb](load, *arguments)
        print(json.dumps(load.tally.report()), flush=True)
    load.stop()
    load.observer.close()


if __name__ == "__main__":
    main()
