"""The terminal: keys, signals and its size, and that it is left as it was found."""

from __future__ import annotations

import contextlib
import enum
import os
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from typing import Final

_ENDING: Final = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
_NOTICED: Final = (*_ENDING, signal.SIGTSTP, signal.SIGWINCH)
_QUIT: Final = frozenset(b"qQ\x04")
"""Keys that end it; the last is Ctrl-D. Ctrl-C comes as a signal."""


class Event(enum.Enum):
    """What happened."""

    CHANGED = "there is something to draw anew"
    SUSPEND = "Ctrl-Z"
    END = "it is to end"


class Terminal:
    """Waits for what a person does, and for a wake-up from another thread.

    All but `wake` is for the main thread. Signals are noticed until `close`.
    """

    def __init__(self) -> None:
        self._restored = contextlib.ExitStack()
        self._woken, waking = os.pipe()
        self._waking: int | None = waking
        self._lock = threading.Lock()
        for end in (self._woken, waking):
            os.set_blocking(end, False)
            self._restored.callback(os.close, end)
        # Signals arrive as bytes, and the handler has nothing left to do.
        self._restored.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(waking))
        for number in _NOTICED:
            before = signal.signal(number, lambda *_: None)
            self._restored.callback(signal.signal, number, before)
        self._keys = sys.stdin.fileno() if sys.stdin.isatty() else None

    def close(self) -> None:
        """Let signals do what they did before."""
        with self._lock:
            self._waking = None
        self._restored.close()

    def wake(self) -> None:
        """Any thread: have `wait` return. Never blocks."""
        with self._lock, contextlib.suppress(BlockingIOError):  # full: it is about to return
            if self._waking is not None:
                os.write(self._waking, b"\0")

    @contextlib.contextmanager
    def immediate_keys(self) -> Iterator[None]:
        """Keys come as they are pressed, and are not shown, until the end of the context."""
        if self._keys is None:
            yield
            return
        before = termios.tcgetattr(self._keys)
        tty.setcbreak(self._keys)
        try:
            yield
        finally:
            termios.tcsetattr(self._keys, termios.TCSADRAIN, before)

    def wait(self, timeout: float) -> Event:
        """Until something happens, or the time is over."""
        watched = [self._woken] if self._keys is None else [self._woken, self._keys]
        ready = select.select(watched, [], [], timeout)[0]
        if self._woken in ready:
            signals = set(os.read(self._woken, 4096))
            if signals & _ENDING:
                return Event.END
            if signal.SIGTSTP in signals:
                return Event.SUSPEND
        if self._keys is not None and self._keys in ready:
            pressed = os.read(self._keys, 4096)
            if not pressed or not _QUIT.isdisjoint(pressed):
                return Event.END
        return Event.CHANGED
