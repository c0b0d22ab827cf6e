"""Faults, and what has to hold after every one of them: each call of the observer is in the
sidecar's counts exactly once, and the trainer did not feel it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

from support.forked import ForkedProcess
from support.load import Options
from support.sidecar import TIMEOUT, SidecarProcess, running, wait_until

TESTS = Path(__file__).parents[1]
SLOW_CALL = 1000.0
"""Microseconds that an observer call may take in 999 of 1000 cases, in wall time. Measured under
a moderate load, in which calls do not contend with each other: on a busy machine the rest is
its scheduler's."""

Report: TypeAlias = dict[str, Any]
"""What a trainer called, as `support.load.Tally.report` has it."""


class Trainer:
    """A running `support.load`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert self._line() == "started"

    def tell(self, verb: str) -> Report:
        """Have it obey, and hear what it called so far."""
        assert self.process.stdin is not None
        self.process.stdin.write(verb + "\n")
        self.process.stdin.flush()
        report: Report = json.loads(self._line())
        return report

    def close(self) -> str:
        """End it in the ordinary way; what it said on stderr."""
        _, err = self.process.communicate(timeout=TIMEOUT)
        assert self.process.returncode == 0, err
        return err

    def connection(self) -> set[str]:
        """Its sockets, by name."""
        found = set()
        for descriptor in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                found.add(str(descriptor.readlink()))
        return {name for name in found if name.startswith("socket:")}

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        assert line, "it ended"
        return line


@contextlib.contextmanager
def load(socket: Path, **options: Any) -> Iterator[Trainer]:
    """A trainer that reports to ``socket``; see `support.load.Options`. It never outlives this."""
    arguments = [str(socket), json.dumps(Options(**options).__dict__)]
    process = subprocess.Popen(
        [sys.executable, "-m", "support.load", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *_inherited_path()])},
    )
    with process:
        try:
            yield Trainer(process)
        finally:
            process.kill()


def _inherited_path() -> list[str]:
    return [path] if (path := os.environ.get("PYTHONPATH")) else []


class RestartedSidecar:
    """A sidecar that is killed and started again, always at the same socket and port."""

    def __init__(self, tmp_path: Path) -> None:
        self.socket = tmp_path / "timing.sock"
        self.url = ""
        self._process: SidecarProcess | None = None
        self._running = contextlib.ExitStack()

    def __enter__(self) -> RestartedSidecar:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._running.close()

    @property
    def now(self) -> SidecarProcess:
        """The one that runs."""
        assert self._process is not None
        return self._process

    def start(self) -> None:
        address = self.url.removeprefix("http://") or "127.0.0.1:0"
        process = ForkedProcess("serve", "--socket", self.socket, "--http", address)
        self._process = self._running.enter_context(running(process))
        self.url = self._process.url

    def kill(self) -> None:
        """SIGKILL: it gets to do nothing more."""
        assert self.now.stop(signal.SIGKILL) == -signal.SIGKILL
        self._running.close()


class Reader:
    """Reads one model's intervals (None: all models') and adds them up, as a client does that
    may lose any answer."""

    def __init__(self, url: str, name: str | None = None, model: str | None = None) -> None:
        self.phases: Counter[str] = Counter()
        self.seconds: Counter[str] = Counter()
        self.delivery: Counter[str] = Counter()
        self.answers = 0
        self.incomplete = 0
        """Intervals that said so of themselves."""
        self.params = {"reset": "true"}
        if name is not None:
            self.params["reader"] = name
        if model is not None:
            self.params["model_id"] = model
        self._url = f"{url}/api/v1/timing"
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def read(self) -> bool:
        """End the interval and take it in. False when no answer came."""
        request = f"{self._url}?{urllib.parse.urlencode(self.params)}"
        try:
            with self._opener.open(request, timeout=TIMEOUT) as response:
                answer = json.load(response)
        except urllib.error.HTTPError:
            raise
        except (OSError, http.client.HTTPException):
            return False
        self._take(answer)
        return True

    def _take(self, answer: dict[str, Any]) -> None:
        self.answers += 1
        for phase, timing in answer["phases"].items():
            self.phases[phase] += timing["count"]
            self.seconds[phase] += timing["total_s"]
        self.delivery.update(answer["delivery"])
        self.incomplete += not answer["interval"]["complete"]
        assert_nothing_negative(answer)
        if answer["interval"]["cursor"] is not None:
            self.params["ack"] = answer["interval"]["cursor"]

    def finish(self) -> None:
        """Read what came last."""
        assert self.read()


@contextlib.contextmanager
def reading(*readers: Reader) -> Iterator[None]:
    """Each reader reads on a thread of its own, all the time, whether it is answered or not."""
    stop = threading.Event()
    failures: list[Exception] = []

    def run(reader: Reader) -> None:
        try:
            while not stop.wait(0.01):
                reader.read()
        except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
            failures.append(error)

    threads = [threading.Thread(target=run, args=(reader,)) for reader in readers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failures == []


def arrived(delivery: dict[str, int]) -> int:
    """Calls of which is known what became of them."""
    assert delivery["sent"] == delivery["applied"] + delivery["dropped"] + delivery["rejected"]
    return delivery["sent"]


def onlooked(sidecar: SidecarProcess, model: str = "*") -> dict[str, Any]:
    """The figures since the beginning, whatever others have read: of a reader that never ends an
    interval."""
    params = {"reader": "onlooker", "model_id": model}
    answer = sidecar.http.get("/api/v1/timing", params=params)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def settled(sidecar: SidecarProcess, report: Report) -> dict[str, Any]:
    """The answer for all models, once every call has arrived."""
    return wait_until(
        lambda: onlooked(sidecar), lambda answer: arrived(answer["delivery"]) >= report["calls"]
    )


def progressed(sidecar: SidecarProcess, events: int = 100) -> None:
    """Wait until so many more events were applied."""
    before = onlooked(sidecar)["delivery"]["applied"]
    wait_until(lambda: onlooked(sidecar)["delivery"]["applied"], lambda now: now >= before + events)


def assert_all_applied(sidecar: SidecarProcess, report: Report) -> None:
    """Lost 0, twice 0: every call is in the counts, and every model's phases have the records
    they should have."""
    answer = settled(sidecar, report)
    calls = report["calls"]
    assert answer["delivery"] == {
        **dict.fromkeys(answer["delivery"], 0),
        "sent": calls,
        "applied": calls,
    }
    for model, expected in report["phases"].items():
        phases = onlooked(sidecar, model)["phases"]
        assert {name: phase["count"] for name, phase in phases.items()} == expected, model


def assert_adds_up(reader: Reader, report: Report) -> None:
    """A reader's intervals have everything, once."""
    model = reader.params.get("model_id", "*")
    assert reader.phases == Counter(report["phases"][model])
    if model == "*":
        assert arrived(reader.delivery) == report["calls"]


def assert_smooth(report: Report) -> None:
    """No call of the observer took long."""
    assert report["latency"]["wall"]["p99.9"] < SLOW_CALL, report["latency"]


def assert_nothing_negative(value: object) -> None:
    """No number in an answer is below zero."""
    if isinstance(value, dict):
        for item in value.values():
            assert_nothing_negative(item)
    elif isinstance(value, int | float):
        assert value >= 0, value
