"""Child processes that speak in JSON lines, heard in one place and ended together."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

STOP_TIMEOUT: Final = 10.0
"""Seconds that processes get to end by themselves: a sidecar takes up to five."""
LOG_TAIL: Final = 20
"""Lines of a failed process's own messages that are worth showing."""


class StoppedError(Exception):
    """Somebody asked the whole to stop (Ctrl-C, SIGTERM)."""


class ChildFailedError(Exception):
    """A process ended that should not have, or did not do its part in time; with its messages."""


@dataclass(frozen=True, slots=True)
class Line:
    """A JSON line of a process; None when its output has ended."""

    source: str
    event: dict[str, Any] | None


class Inbox:
    """Everything the main thread waits for comes through here, the wish to stop included. So an
    interrupt never strikes between starting a process and remembering it."""

    def __init__(self) -> None:
        self._lines: queue.SimpleQueue[Line | None] = queue.SimpleQueue()

    def put(self, line: Line) -> None:
        """Any thread."""
        self._lines.put(line)

    def stop(self) -> None:
        """Any thread, and signal handlers: a SimpleQueue may be put to at any moment."""
        self._lines.put(None)

    def get(self, timeout: float) -> Line:
        """The next line. Raises `StoppedError`, or TimeoutError after ``timeout`` seconds."""
        try:
            line = self._lines.get(timeout=max(0.0, timeout))
        except queue.Empty:
            raise TimeoutError from None
        if line is None:
            raise StoppedError
        return line


class Child:
    """A process with its standard output in an inbox and its messages in a file."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        inbox: Inbox,
        log: Path,
        environment: Mapping[str, str],
    ) -> None:
        self.name = name
        self.log = log
        self._inbox = inbox
        with log.open("wb") as messages:
            # A session of its own: Ctrl-C in the terminal reaches the demo alone, which then
            # ends everything in order.
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=messages,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def failure(self, what: str) -> ChildFailedError:
        """An error that says ``what`` happened to it, and what it and the others said last: often
        it is another one's fault."""
        lines = [f"{self.name} {what}"]
        for log in [self.log, *sorted(set(self.log.parent.glob("*.log")) - {self.log})]:
            tail = log.read_text("utf-8", "replace").splitlines()[-LOG_TAIL:]
            lines += [f"  {log.stem}: {line}" for line in tail]
        return ChildFailedError("\n".join(lines))

    def kill(self) -> None:
        """End it and its group at once. What is in sessions of their own below it, a sidecar and
        a backend, notices by the end of its standard input."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def close(self) -> None:
        """After its end: nothing of it stays open."""
        self.process.wait()
        self._reader.join()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                with contextlib.suppress(ValueError):
                    event = json.loads(line)
                    if isinstance(event, dict):
                        self._inbox.put(Line(self.name, event))
        self._inbox.put(Line(self.name, None))


def stop_all(children: Sequence[Child]) -> list[str]:
    """End the processes, all at once; the names of those that had to be killed."""
    for child in children:
        if child.process.poll() is None:
            child.process.terminate()
    deadline = time.monotonic() + STOP_TIMEOUT
    killed = []
    for child in children:
        try:
            child.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            killed.append(child.name)
            child.kill()
        child.close()
    return killed
