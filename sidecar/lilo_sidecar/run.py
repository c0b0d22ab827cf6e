"""`lilo-sidecar run -- CMD`: a command with a sidecar beside it. The command comes first: it runs
whatever becomes of its timing."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import AsyncIterator
from typing import Final

import trio

from .keeper import Keeper
from .leftovers import own_state
from .options import RunOptions
from .output import LineWriter

READY_TIMEOUT: Final = 10.0
"""Seconds that the command waits for its sidecar; it starts in well under one."""
FORWARDED: Final = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_FROM_KEYBOARD: Final = frozenset({signal.SIGINT, signal.SIGQUIT})
_ENDS_THE_WAIT: Final = frozenset(FORWARDED) - {signal.SIGUSR1, signal.SIGUSR2}
# As shells have it.
_NOT_FOUND: Final = 127
_NOT_EXECUTABLE: Final = 126
_SIGNALLED: Final = 128

_log = logging.getLogger("lilo_sidecar.run")


class Supervisor:
    """One run of a command beside a sidecar."""

    def __init__(self, options: RunOptions) -> None:
        self._options = options
        self._command: trio.Process | None = None
        self._ended_by: int | None = None
        """The signal that came before the command was started."""
        self._held: list[int] | None = None
        """The signals that came while it was being started; None before that."""
        self._wait = trio.CancelScope()

    async def run(self, lines: LineWriter) -> int:
        """Run the command to its end; its exit status, as a shell gives it."""
        if self._options.keep_state:
            return await self._run(lines)
        serve = self._options.serve
        with own_state(serve.state_dir, shared=bool(serve.allowed_uids)):
            return await self._run(lines)

    async def _run(self, lines: LineWriter) -> int:
        keeper = Keeper(self._options.serve, lines)
        # One that was ignored from the start (nohup) stays so, for the command too.
        caught = [number for number in FORWARDED if signal.getsignal(number) != signal.SIG_IGN]
        with trio.open_signal_receiver(*caught) as signals:
            async with trio.open_nursery() as background:
                background.start_soon(self._forward, signals)
                async with trio.open_nursery() as sidecar:
                    sidecar.start_soon(keeper.run)
                    try:
                        status = await self._run_command(keeper)
                    finally:
                        keeper.stop()
                background.cancel_scope.cancel()
        return status

    async def _run_command(self, keeper: Keeper) -> int:
        with self._wait:
            with trio.move_on_after(READY_TIMEOUT):
                await keeper.settled.wait()
        if self._ended_by is not None:
            return _SIGNALLED + self._ended_by
        if keeper.url is None:
            _log.warning(
                "the sidecar is not ready; the command runs without timing for now, "
                "and the sidecar is tried again in the background"
            )
        command = self._options.command
        self._held = []
        try:
            self._command = await trio.lowlevel.open_process(
                command, env=self._environment(keeper.url)
            )
        except OSError as error:
            _log.error("cannot run %s: %s", command[0], error.strerror)
            return _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE
        for number in self._held:
            self._pass_on(number)
        status = await self._command.wait()
        return status if status >= 0 else _SIGNALLED - status

    def _environment(self, url: str | None) -> dict[str, str]:
        """The command's environment. The socket is named even while nobody listens there: the
        hook finds the sidecar once it is up."""
        environment = {**os.environ, "LILO_TIMING_SOCKET": str(self._options.serve.socket)}
        environment.pop("LILO_TIMING_URL", None)
        if url is not None:
            environment["LILO_TIMING_URL"] = url
        return environment

    async def _forward(self, signals: AsyncIterator[int]) -> None:
        async for number in signals:
            if self._command is not None:
                self._pass_on(number)
            elif self._held is not None:
                self._held.append(number)
            elif number in _ENDS_THE_WAIT:
                self._ended_by = number
                self._wait.cancel()

    def _pass_on(self, number: int) -> None:
        if self._command is not None and not (number in _FROM_KEYBOARD and _is_foreground()):
            self._command.send_signal(signal.Signals(number))


def _is_foreground() -> bool:
    """Whether the keyboard's signals go to this process's group. Then the command, which is in
    the group, has got them already; a second one would mean "at once" to many programs."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
