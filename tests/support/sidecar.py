"""A real sidecar process for tests, and what it says on stdout, on stderr and over HTTP."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, TypeAlias, TypeVar

import httpx

from support.forked import ForkedProcess

TIMEOUT = 20.0
"""Seconds until a test that waits gives up."""
PROMISED = 5.0
"""Seconds within which the sidecar ends."""
_T = TypeVar("_T")
COMMAND = (sys.executable, "-P", "-m", "lilo_sidecar")
Process: TypeAlias = subprocess.Popen[str] | ForkedProcess


class Output:
    """The lines of a stream, collected by a thread; wait for one with `wait_for`."""

    def __init__(self, stream: IO[str]) -> None:
        self.lines: list[str] = []
        self.ended = False
        self._changed = threading.Condition()
        self._stream = stream
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def wait_for(self, wanted: Callable[[str], bool], timeout: float = TIMEOUT) -> str:
        """The first line that is ``wanted``; an AssertionError when none comes."""
        found: list[str] = []

        def arrived() -> bool:
            found.extend(line for line in self.lines if wanted(line))
            return bool(found) or self.ended

        with self._changed:
            self._changed.wait_for(arrived, timeout)
        assert found, f"no such line among {self.lines}"
        return found[0]

    def rest(self) -> list[str]:
        """All lines, once the stream has ended."""
        self._thread.join(TIMEOUT)
        assert self.ended
        return self.lines

    def _read(self) -> None:
        for line in self._stream:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self.ended = True
            self._changed.notify_all()
        self._stream.close()


class SidecarProcess:
    """A running `lilo-sidecar`, ready to be talked to."""

    def __init__(self, process: Process, token: str | None = None) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self.process = process
        self.stdout = Output(process.stdout)
        self.log = Output(process.stderr)
        ready = self.line("lilo_sidecar_ready")
        self.socket = Path(ready["socket"])
        self.url: str = ready["http"]
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self.http = httpx.Client(
            base_url=self.url,
            headers=headers,
            trust_env=False,
            timeout=TIMEOUT,
            # Kept for as long as the sidecar keeps it: one without a descriptor takes no other.
            limits=httpx.Limits(keepalive_expiry=None),
        )

    def line(self, event: str, **fields: object) -> dict[str, Any]:
        """The first JSON line on stdout of that event with these fields; waits for it."""
        wanted = {"event": event, **fields}

        def matches(text: str) -> bool:
            said = json.loads(text)
            return all(said.get(name) == value for name, value in wanted.items())

        line: dict[str, Any] = json.loads(self.stdout.wait_for(matches))
        return line

    def lines(self, event: str) -> list[dict[str, Any]]:
        """All JSON lines of that event so far."""
        said = [json.loads(text) for text in list(self.stdout.lines)]
        return [line for line in said if line["event"] == event]

    def timing(self, model_id: str | None = None, *, reset: bool = False) -> dict[str, Any]:
        """The timing answer."""
        params = {"reset": "true"} if reset else {}
        if model_id is not None:
            params["model_id"] = model_id
        answer = self.http.get("/api/v1/timing", params=params)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def health(self) -> dict[str, Any]:
        """The health answer."""
        return dict(self.http.get("/healthz").json())

    def wait_for(self, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first health answer for which the condition holds."""
        return wait_until(self.health, condition)

    def rss_bytes(self) -> int:
        """Memory the process holds in RAM."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def stop(self, number: int = signal.SIGTERM, timeout: float = TIMEOUT) -> int:
        """Send a signal and wait for the exit status."""
        self.process.send_signal(number)
        return self.process.wait(timeout)


def wait_until(ask: Callable[[], _T], condition: Callable[[_T], bool]) -> _T:
    """Ask again until the condition holds of the answer; for what nobody notifies about."""
    deadline = time.monotonic() + TIMEOUT
    while not condition(answer := ask()):
        assert time.monotonic() < deadline, f"still {answer}"
        time.sleep(0.01)
    return answer


def launch(*arguments: str | Path, **kwargs: Any) -> subprocess.Popen[str]:
    """Start `lilo-sidecar` with pipes on stdout and stderr."""
    command = [*COMMAND, *map(str, arguments)]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **kwargs}
    return subprocess.Popen(command, text=True, **streams)


def refusal(*arguments: str | Path, **kwargs: Any) -> str:
    """Start `lilo-sidecar` where it must not start: what it says, which is one line, no
    traceback, after which it exits with 2."""
    process = launch(*arguments, **kwargs)
    out, err = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, out) == (2, ""), (process.returncode, out, err)
    (line,) = err.splitlines()
    assert line.startswith("lilo-sidecar: error: ")
    return str(line)


@contextlib.contextmanager
def start_sidecar(
    tmp_path: Path, *arguments: str | Path, token: str | None = None, **kwargs: Any
) -> Iterator[SidecarProcess]:
    """A sidecar that is ready, at ``tmp_path / "timing.sock"`` and any free port unless the
    arguments say otherwise; killed at the end if it still runs then."""
    given: Sequence[str | Path] = arguments
    if "--socket" not in given:
        given = ["--socket", tmp_path / "timing.sock", *given]
    with running(launch("serve", *given, **kwargs), token) as sidecar:
        yield sidecar


@contextlib.contextmanager
def running(process: Process, token: str | None = None) -> Iterator[SidecarProcess]:
    """A launched process, once it is ready; killed at the end if it still runs then."""
    try:
        sidecar = SidecarProcess(process, token)
        with sidecar.http:
            yield sidecar
    finally:
        process.kill()
        process.wait()
