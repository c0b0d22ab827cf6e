"""The picture, again and again, until somebody ends it."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.text import Text

from ..faults import described
from ..shown import shown
from ..words import duration
from .glyphs import Glyphs, glyphs_for
from .overview import Overview
from .picture import picture
from .source import NoAnswerError, Source
from .terminal import Event, Terminal

_REDRAW: Final = 1.0
"""Seconds after which the time since the last answer is drawn anew."""


class Looker:
    """Looks again and again on a thread of its own: a sidecar that does not answer keeps nobody
    from pressing q. The attributes are written by that thread, and read by any."""

    def __init__(self, source: Source, interval: float, terminal: Terminal) -> None:
        self.overview: Overview | None = None
        """The last one."""
        self.url = ""
        """Where it came from."""
        self.trouble: str | None = None
        """Why there is none since."""
        self.answered_at = time.monotonic()
        """When it came; before the first one, the start."""
        self._source = source
        self._interval = interval
        self._terminal = terminal
        threading.Thread(target=self._run, name="lilo-top", daemon=True).start()

    def _run(self) -> None:
        while True:
            began = time.monotonic()
            try:
                self.overview = self._source.look()
                self.url, self.trouble, self.answered_at = self._source.url, None, time.monotonic()
            except NoAnswerError as error:
                self.trouble = str(error)
            except Exception as error:  # noqa: BLE001 - to be seen, and tried again
                self.trouble = f"A fault of this command: {described(error)}."
            self._terminal.wake()
            time.sleep(max(0.0, began + self._interval - time.monotonic()))


def show(source: Source, interval: float, console: Console) -> None:
    """Until q is pressed, or a signal comes; the terminal is then as it was. Main thread."""
    with contextlib.closing(Terminal()) as terminal:
        looker = Looker(source, interval, terminal)
        while _draw(looker, terminal, console) is Event.SUSPEND:
            os.kill(os.getpid(), signal.SIGSTOP)  # goes on here, with `fg`


def _draw(looker: Looker, terminal: Terminal, console: Console) -> Event:
    """Until it is to end, or to make way for the shell."""
    glyphs = glyphs_for(console.encoding)
    with (
        terminal.immediate_keys(),
        Live(
            console=console,
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        ) as live,
    ):
        event = Event.CHANGED
        while event is Event.CHANGED:
            size = console.size.width, console.size.height
            live.update(_drawn(looker, size, glyphs), refresh=True)
            event = terminal.wait(_REDRAW)
        return event


def _drawn(looker: Looker, size: tuple[int, int], glyphs: Glyphs) -> Text:
    trouble = None
    if looker.trouble is not None:
        since = duration(time.monotonic() - looker.answered_at)
        why = shown(looker.trouble, 1000)
        trouble = f"No answer for {since}, trying again; q ends this. {why}"
    if looker.overview is None:
        return Text(trouble or "Asking the sidecar; q ends this.")
    return picture(looker.overview, looker.url, size, glyphs, trouble)
