"""A program on a terminal of its own: what a person would see there, and keys."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pyte

TIMEOUT = 20.0
"""Seconds until a test that waits gives up."""


class TerminalProcess:
    """A process whose stdin, stdout, stderr and controlling terminal are a real pseudo-terminal,
    which a terminal emulator reads."""

    def __init__(
        self,
        command: Sequence[str | Path],
        columns: int,
        lines: int,
        environment: Mapping[str, str],
    ) -> None:
        self.raw = b""
        """All that the process has sent."""
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self._changed = threading.Condition()
        self._ended = False
        self._master, self._slave = os.openpty()
        self._set_size(columns, lines)
        self.attributes = termios.tcgetattr(self._slave)
        """As the terminal was at first."""
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *map(str, command)],
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            env={**os.environ, "TERM": "xterm-256color", **environment},
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def press(self, keys: str) -> None:
        """As a person does."""
        os.write(self._master, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        """Make the window another size; the process is told by the kernel."""
        with self._changed:
            self._screen.resize(lines, columns)
            self._screen.reset()
        self._set_size(columns, lines)

    def attributes_now(self) -> list[object]:
        """Of the terminal, by now."""
        return termios.tcgetattr(self._slave)

    def wait_for(self, wanted: Callable[[str], bool]) -> str:
        """The first screen (its lines, joined) that is ``wanted``."""
        with self._changed:
            found = self._changed.wait_for(lambda: wanted(self.text) or self._ended, TIMEOUT)
            assert found, f"no such screen; there is:\n{self.text}"
            assert wanted(self.text), f"it ended with:\n{self.text}"
            return self.text

    def wait_for_raw(self, wanted: bytes, after: int = 0) -> None:
        """Until the process has sent that."""
        with self._changed:
            arrived = self._changed.wait_for(lambda: wanted in self.raw[after:], TIMEOUT)
        assert arrived, self.raw[after:]

    @property
    def text(self) -> str:
        """What is on the screen."""
        return "\n".join(line.rstrip() for line in self._screen.display)

    def wait(self) -> int:
        """The exit status."""
        return self.process.wait(TIMEOUT)

    def close(self) -> None:
        """End it, if it still runs."""
        self.process.kill()
        self.process.wait()
        os.close(self._slave)  # the last one: reading ends
        self._thread.join(TIMEOUT)
        os.close(self._master)

    def _set_size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, 65536)
            except OSError:  # nobody has the other end any more
                data = b""
            with self._changed:
                self.raw += data
                self._ended = not data
                if data:
                    self._stream.feed(data)
                self._changed.notify_all()
            if not data:
                return


@contextlib.contextmanager
def on_terminal(
    *command: str | Path, columns: int = 80, lines: int = 24, **environment: str
) -> Iterator[TerminalProcess]:
    """A program on a terminal of that size; killed at the end if it still runs."""
    terminal = TerminalProcess(command, columns, lines, environment)
    try:
        yield terminal
    finally:
        terminal.close()


def is_stopped(pid: int) -> bool:
    """Whether the process was stopped, as by Ctrl-Z."""
    status = Path(f"/proc/{pid}/stat").read_text()
    return status.rpartition(")")[2].split()[0] == "T"


def go_on(pid: int) -> None:
    """As the shell's `fg` does."""
    os.kill(pid, signal.SIGCONT)
