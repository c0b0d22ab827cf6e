"""Lines to stdout and stderr that never hold the daemon up, whatever became of their reader."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
from typing import Final

MAX_LINES: Final = 1000
"""Lines that wait for a reader who does not read; further ones are dropped and counted."""
_LAST_STANDARD_FD: Final = 2


class LineWriter:
    """Writes lines to a file descriptor on a thread of its own.

    `write` may be called from any thread, never blocks and never raises: a reader that is slow
    costs lines, one that is gone costs all further lines, and neither costs the caller time.
    """

    def __init__(self, fd: int) -> None:
        self.dropped = 0
        """Lines that found no room."""
        self._fd = fd
        self._lines: queue.Queue[str | None] = queue.Queue(MAX_LINES)
        # A daemon: a write that blocks for ever must not keep the process from exiting.
        self._thread = threading.Thread(target=self._run, name=f"lines-{fd}", daemon=True)
        self._thread.start()

    def write(self, line: str) -> None:
        """Queue one line; the line feed is added here."""
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self.dropped += 1

    def close(self, timeout: float) -> None:
        """Write what is queued, for at most ``timeout`` seconds."""
        with contextlib.suppress(queue.Full):
            self._lines.put(None, timeout=timeout)
        self._thread.join(timeout)

    def _run(self) -> None:
        broken = False
        while (line := self._lines.get()) is not None:
            # Past the file objects of sys: their locks would be held in a write that blocks,
            # and the interpreter takes them when it exits.
            data = f"{line}\n".encode(errors="backslashreplace")
            while data and not broken:
                try:
                    data = data[os.write(self._fd, data) :]
                except OSError:  # nobody will ever read it
                    broken = True


class LineHandler(logging.Handler):
    """Log records as lines of a `LineWriter`."""

    def __init__(self, writer: LineWriter) -> None:
        super().__init__()
        self._writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        self._writer.write(self.format(record))


def log_to(writer: LineWriter) -> None:
    """Send this process's log there, from INFO up."""
    handler = LineHandler(writer)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


def keep_standard_descriptors() -> None:
    """Put /dev/null wherever stdin, stdout or stderr was closed before this process started:
    the next socket opened would take that number, and lines would be written into it."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= _LAST_STANDARD_FD:
        os.set_inheritable(fd, True)
    os.close(fd)
