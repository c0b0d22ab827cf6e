"""Keeps a sidecar process running beside a command: starts it, reads it, restarts it, stops it."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from typing import Final
from urllib.parse import urlsplit

import trio

from .options import ServeOptions
from .output import LineWriter

FIRST_RESTART: Final = 0.1
"""Seconds until a sidecar that ended is started again, so that its producers miss little."""
LAST_RESTART: Final = 10.0
"""Seconds that the pause grows to, doubling, while it ends again soon."""
STEADY: Final = 30.0
"""Seconds after which a sidecar counts as running well: the next pause is the first again."""
STOP_TIMEOUT: Final = 6.0
"""Seconds to stop, a second more than the sidecar promises; then it is killed."""
_MAX_LINE: Final = 1024 * 1024
"""Bytes of a line of the sidecar's; one of 1024 phases has some 130 kB."""

_log = logging.getLogger("lilo_sidecar.run")


class Keeper:
    """One sidecar at a time, always at the same socket and, once it had one, the same port.

    It is in a session of its own: a signal to the terminal's group is the command's to act on,
    and the sidecar stays until the command has reported its last.
    """

    def __init__(self, options: ServeOptions, lines: LineWriter) -> None:
        self.settled = trio.Event()
        """Set once the first sidecar is ready, or has failed."""
        self.url: str | None = None
        """Where it serves HTTP; None until it was ready for the first time."""
        self._options = options
        self._lines = lines
        self._port = options.address[1]
        self._stop = trio.Event()

    def stop(self) -> None:
        """Have `run` stop the sidecar and return."""
        self._stop.set()

    async def run(self) -> None:
        """Keep a sidecar running until `stop`."""
        pause = FIRST_RESTART
        while not self._stop.is_set():
            began = trio.current_time()
            ended = await self._run_once()
            self.settled.set()
            if self._stop.is_set():
                return
            if trio.current_time() - began > STEADY:
                pause = FIRST_RESTART
            _log.warning("the sidecar ended (%s); starting it again in %.1f s", ended, pause)
            with trio.move_on_after(pause):
                await self._stop.wait()
            pause = min(2 * pause, LAST_RESTART)

    def _arguments(self) -> list[str]:
        host = self._options.address[0]
        arguments = [
            # -P: a file of the user's called trio.py is not taken for the package.
            *(sys.executable, "-P", "-m", "lilo_sidecar", "serve", "--stop-at-eof"),
            *("--socket", str(self._options.socket)),
            *("--http", f"[{host}]:{self._port}" if ":" in host else f"{host}:{self._port}"),
            *("--report-interval", str(self._options.report_interval)),
            *("--state-dir", str(self._options.state_dir)),
        ]
        for uid in sorted(self._options.allowed_uids):
            arguments += ["--allow-uid", str(uid)]
        if self._options.token_file is not None:
            arguments += ["--token-file", str(self._options.token_file.absolute())]
        return arguments

    async def _run_once(self) -> str:
        """Run one sidecar to its end, or ours; how it ended."""
        try:
            process = await trio.lowlevel.open_process(
                self._arguments(),
                # Ends with this process, however that ends: no sidecar is left behind.
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            return f"cannot be started: {error}"
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._end_when_told, process)
                await self._pass_on(process)
                status = await process.wait()
                nursery.cancel_scope.cancel()
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
        return f"status {status}" if status >= 0 else f"signal {-status}"

    async def _end_when_told(self, process: trio.Process) -> None:
        await self._stop.wait()
        process.terminate()
        await trio.sleep(STOP_TIMEOUT)
        _log.warning("the sidecar did not stop within %.0f s and is killed", STOP_TIMEOUT)
        process.kill()

    async def _pass_on(self, process: trio.Process) -> None:
        """Hand the sidecar's lines on, whole, until it closes its stdout."""
        assert process.stdout is not None  # noqa: S101 - it was asked for
        pending = bytearray()
        async for chunk in process.stdout:
            pending += chunk
            *whole, rest = pending.split(b"\n")
            for line in whole:
                self._hear(line)
            pending = rest if len(rest) <= _MAX_LINE else bytearray()

    def _hear(self, line: bytes | bytearray) -> None:
        text = line.decode(errors="replace")
        self._lines.write(text)
        if self.settled.is_set() and self.url is not None:
            return
        try:
            said = json.loads(text)
        except ValueError:
            return
        if isinstance(said, dict) and said.get("event") == "lilo_sidecar_ready":
            self.url = str(said["http"])
            self._port = urlsplit(self.url).port or self._port
            self.settled.set()
