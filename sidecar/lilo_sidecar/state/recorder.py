"""The core with its journal: what changes its state is written down before it happens.

A sidecar that is killed at any moment goes on from there. Where no new journal can be begun, the
one before is written on for a while. Where the journal cannot be written it goes on in memory, says
so, and writes again as soon as it can: with a snapshot of what it came to meanwhile.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

import trio

from lilo_engine_hook import wire

from ..core.critical_path import CriticalPath
from ..core.recent_spans import RecentSpans
from ..core.timing import Health, Timing
from ..core.totals import Totals
from ..faults import described
from ..web.query import TimingQuery
from .directory import MAX_OVERDUE, MAX_TAIL, StateDirectory
from .journal import Applied, Asked, Connected, Disconnected, JournalFile, Record
from .snapshot import SnapshotTooLargeError, dump

TEND_INTERVAL: Final = 5.0
"""Seconds between looks after the journal: one that could not be written is tried again."""
_MAX_PAUSE: Final = 11
"""Looks that are left out, at most, while the state is too large: to find that out takes as long
as to write a snapshot, and nothing else runs meanwhile."""
_MIN_TAIL: Final = 1024 * 1024
"""Bytes of a journal that are worth a new snapshot."""
_UNPACKED: Final = 5
"""Bytes of the state for each of a snapshot's, about."""

_log = logging.getLogger("lilo_sidecar.state.journal")


class JournalStatus(NamedTuple):
    """Whether what was counted so far would survive the end of the sidecar."""

    writing: bool
    reason: str | None
    """Why not; None if it would."""


class Recorder:
    """Passes on to the core what producers and readers want of it, in one order.

    The daemon's one thread. No method raises for want of a journal, and none waits for anything
    but the page cache.
    """

    def __init__(
        self, core: CriticalPath, directory: StateDirectory | None, clock: Callable[[], float]
    ) -> None:
        """The journal goes on from the core as it is; None keeps none."""
        self._core = core
        self._directory = directory
        self._clock = clock
        self._file: JournalFile | None = None
        self._limit = _MIN_TAIL
        self._reason: str | None = None
        self._overdue: str | None = None
        """Why the journal that is written has not been followed by a new one."""
        self._pause = 0
        """Looks to leave out before the state is tried again that was too large."""
        self._left_out = 0
        self.spans = RecentSpans(clock())
        """Of the state no part: they are of no use to whoever goes on from it."""
        self._begin()

    @property
    def status(self) -> JournalStatus:
        """Of the journal, by now."""
        return JournalStatus(self._reason is None, self._reason)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look after the journal until cancelled."""
        task_status.started()
        while True:
            await trio.sleep(TEND_INTERVAL)
            self.tend()

    def tend(self) -> None:
        """Begin a new journal if there is none, if somebody removed it, or if it is overdue."""
        if self._file is None:
            if self._left_out < self._pause:
                self._left_out += 1
            else:
                self._begin()
        elif self._directory is not None and not self._directory.holds(self._file):
            _log.warning("the journal was removed by somebody; a new one is begun")
            self._begin()
        elif self._overdue is not None:
            self._begin()

    def close(self) -> None:
        """Write no more, and let another sidecar use the directory."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
        if self._directory is not None:
            self._directory.close()

    # --- what the core is asked -------------------------------------------------------------

    def connect(self, hello: wire.Hello, payload: bytes) -> list[Timing]:
        """See `CriticalPath.connect`; ``payload`` is the hello as it came."""
        now = self._clock()
        self._write(Connected(now, payload))
        return self._core.connect(hello, now)

    def acked(self, boot_id: str) -> int:
        """See `CriticalPath.acked`."""
        return self._core.acked(boot_id)

    def apply(self, boot_id: str, batch: wire.Batch, payload: bytes) -> int:
        """See `CriticalPath.apply`; ``payload`` is the batch as it came."""
        now = self._clock()
        self._write(Applied(now, boot_id, payload))
        known = self._core.acked(boot_id) + 1 - batch.first_seq  # of a batch that is sent again
        self.spans.add(batch.events[max(0, known) :], now)
        return self._core.apply(boot_id, batch, now)

    def disconnect(self, boot_id: str) -> None:
        """See `CriticalPath.disconnect`."""
        now = self._clock()
        self._write(Disconnected(now, boot_id))
        self._core.disconnect(boot_id, now)

    def timing(self, query: TimingQuery) -> Timing:
        """See `CriticalPath.timing`."""
        now = self._clock()
        model_id, reset, reader, ack = query
        if self._core.is_touched(model_id, reset=reset, ack=ack, now=now):
            said = None if ack is None else str(ack)
            self._write(Asked(now, model_id, reset, reader, said))
        return self._core.timing(model_id, reset=reset, now=now, reader=reader, ack=ack)

    def lifetime(self) -> Timing:
        """See `CriticalPath.lifetime`."""
        return self._core.lifetime(self._clock())

    def totals(self, *, ahead: bool = False) -> Totals:
        """See `CriticalPath.totals`."""
        return self._core.totals(ahead=ahead)

    def health(self) -> Health:
        """See `CriticalPath.health`."""
        return self._core.health(self._clock())

    # --- the journal ------------------------------------------------------------------------

    def _write(self, record: Record) -> None:
        if self._file is not None and self._file.size >= self._limit:
            self._begin()
        if self._file is None:
            return
        try:
            self._file.append(record)
        except OSError as error:
            self._stop_writing(_reason(error))

    def _begin(self) -> None:
        """Begin a journal with the state as it is."""
        if self._directory is None:
            self._reason = "there is no state directory"
            return
        try:
            if not self._directory.is_open:
                self._directory.open()
                if self._file is None:
                    self._set_aside_unread(self._directory)
            snapshot = dump(self._core)
            file = self._directory.begin(snapshot)
        except SnapshotTooLargeError as error:
            self._stop_writing(str(error), again=self._pause > 0)
            self._pause, self._left_out = min(2 * self._pause + 1, _MAX_PAUSE), 0
            return
        except OSError as error:
            self._go_on(self._directory, _reason(error))
            return
        except Exception as error:  # noqa: BLE001 - a fault of ours must not cost the figures
            self._stop_writing(f"a fault of the sidecar: {described(error)}")
            return
        before, self._file = self._file, file
        if before is not None:
            before.close()
        # A snapshot costs time in proportion to the state; so it is not made for less than that.
        self._limit = min(max(_UNPACKED * len(snapshot), _MIN_TAIL), MAX_TAIL)
        if self._reason is not None:
            _log.info("the journal is written again")
        elif self._overdue is not None:
            _log.info("a new journal is begun")
        self._reason = self._overdue = None
        self._pause = 0

    def _set_aside_unread(self, directory: StateDirectory) -> None:
        """There may be a state that could not be read at the start, or that another sidecar has
        left since; one without a journal is of the past, and nobody's."""
        generation = directory.latest()
        if generation is not None and generation.journal:
            directory.set_aside()
            _log.warning(
                "the state directory has a state that this sidecar did not go on from; it is set "
                "aside"
            )

    def _go_on(self, directory: StateDirectory, reason: str) -> None:
        """No new journal can be begun, for a reason that may pass. The one before still goes on
        from the snapshot before: it is written on while it is the one that would be read, and not
        too long. A look tries again, and not each record: it takes as long as a snapshot."""
        most = MAX_TAIL + MAX_OVERDUE
        if self._file is None or self._file.size >= most or not directory.holds(self._file):
            self._stop_writing(reason)
            return
        if reason != self._overdue:
            _log.warning(
                "no new journal can be begun: %s; the sidecar goes on with the one before, up to "
                "%.1f MiB, and tries again every %.0f s",
                reason,
                most / 1024**2,
                TEND_INTERVAL,
            )
        self._overdue = reason
        self._limit = most

    def _stop_writing(self, reason: str, *, again: bool = False) -> None:
        """``again``: the log was told, if with other figures."""
        if reason != self._reason and not again:
            _log.warning(
                "the journal cannot be written: %s; the sidecar goes on in memory and tries again "
                "every %.0f s, or less often. If it ends meanwhile, what it counted is lost",
                reason,
                TEND_INTERVAL,
            )
        self._reason = reason
        # What is there is of the past: to go on from it would give figures out twice. Both are
        # tried, since each can do what the other cannot.
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                file.end()
        if self._directory is None:
            return
        if self._directory.is_open:
            self._directory.discard()
        self._directory.close()


def _reason(error: OSError) -> str:
    """Without the path, which is nobody's business who only reads `/healthz`."""
    return error.strerror or "I/O error"
