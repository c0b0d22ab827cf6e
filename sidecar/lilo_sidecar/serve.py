"""`lilo-sidecar serve`: the daemon, put together; its start, its end, and its signals."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Final

import trio

from .intake.activation import PassedListener
from .intake.ingest import Ingest
from .intake.listening import Listener, http_listener, unix_listener
from .options import ServeOptions
from .output import LineWriter
from .reporter import Reporter
from .state.directory import StateDirectory
from .state.recorder import Recorder
from .state.recovery import recover
from .web.api import Api
from .web.server import GRACEFUL_TIMEOUT, HttpServer, url_of
from .whereabouts import announced

CRASHED: Final = 1
"""Exit status after a fault of the daemon's own."""
_HTTP_STOP_TIMEOUT: Final = GRACEFUL_TIMEOUT + 0.5
"""Seconds until a server that does not stop is cut off. With a second to drain before and one
for the last lines after, the end comes well within the five seconds that are promised."""

_ENDING: Final = (signal.SIGTERM, signal.SIGINT)

_log = logging.getLogger("lilo_sidecar")


class Daemon:
    """One run of the sidecar. Everything is on trio's one thread.

    The intake and the HTTP server are kept apart: what ends one of them ends the daemon, in
    good order, with the reason in the log and CRASHED as its status, never silently.
    """

    def __init__(self, options: ServeOptions) -> None:
        self._options = options
        self._stop = trio.Event()
        self._status = 0

    async def run(self, lines: LineWriter) -> int:
        """Serve until told to stop; the exit status. Raises `StartError` when it cannot start."""
        token = self._options.token()
        allowed = self._options.allowed_uids
        http = http_listener(self._options.family, self._options.address)
        with http, self._listener() as listener:
            url = url_of(http)
            # Not before the socket is this sidecar's own: so is the state beside it, then.
            directory = StateDirectory(self._options.state_dir)
            core = Recorder(recover(directory, time.time()), directory, time.time)
            reporter = Reporter(core, lines, self._options.report_interval)
            ingest = Ingest(core, reporter.trainer_ended, allowed)
            api = Api(core, ingest, reporter, time.time)
            async with trio.open_nursery() as nursery:
                await nursery.start(self._heed_signals)
                if self._options.stop_at_eof:
                    nursery.start_soon(self._heed_stdin)
                await self._start(nursery, "the intake", partial(ingest.run, listener))
                await self._start(nursery, "the journal", core.run)
                await self._start(nursery, "the reporter", reporter.run)
                await self._start(nursery, "the overview", api.overview.run)
                async with trio.open_nursery() as web:
                    server = HttpServer(api.app(token))
                    api.served_by(server)
                    ingest.give_way_to(lambda: server.is_working)
                    serve = partial(server.run, http, self._stop.wait)
                    await self._start(web, "the HTTP server", serve)
                    with self._announced(url):
                        ready = {"socket": str(self._options.socket), "http": url}
                        lines.write(json.dumps({"event": "lilo_sidecar_ready", **ready}))
                        await self._stop.wait()
                    await ingest.drain(listener)
                    web.cancel_scope.deadline = trio.current_time() + _HTTP_STOP_TIMEOUT
                nursery.cancel_scope.cancel()
            core.close()
        reporter.shutdown()
        return self._status

    def _listener(self) -> contextlib.AbstractContextManager[Listener]:
        if self._options.passed is not None:
            return contextlib.closing(PassedListener(self._options.passed))
        return unix_listener(self._options.socket, self._options.allowed_uids)

    def _announced(self, url: str) -> AbstractContextManager[None]:
        # Who listens at a passed socket is systemd, sidecar or not: nobody could tell whether a
        # file beside it is of the past.
        if self._options.passed is not None:
            return nullcontext()
        return announced(self._options.socket, url, shared=bool(self._options.allowed_uids))

    async def _start(
        self, nursery: trio.Nursery, name: str, part: Callable[..., Awaitable[None]]
    ) -> None:
        """Start one part; if it ever fails, stop the daemon and say why."""

        async def guarded(*, task_status: trio.TaskStatus[None]) -> None:
            try:
                await part(task_status=task_status)
            except Exception:  # noqa: BLE001 - whatever it is, the end is to be orderly
                _log.exception("%s failed; the sidecar stops", name)
                self._status = CRASHED
                self._stop.set()

        await nursery.start(guarded)

    async def _heed_signals(self, *, task_status: trio.TaskStatus[None]) -> None:
        # Whatever is received after the first one finds the default action, which ends the
        # process at once, whatever it is in the middle of.
        for number in _ENDING:
            signal.signal(number, signal.SIG_DFL)
        with trio.open_signal_receiver(*_ENDING) as signals:
            task_status.started()
            async for _ in signals:
                break
        self._stop.set()

    async def _heed_stdin(self) -> None:
        while True:
            await trio.lowlevel.wait_readable(0)
            if not os.read(0, 4096):
                _log.info("stdin ended: whoever started this sidecar is gone; it stops")
                self._stop.set()
                return
