"""The intake of a sidecar with a core, on a virtual clock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import trio
import trio.testing

from lilo_sidecar.core.critical_path import CriticalPath
from lilo_sidecar.core.timing import Timing
from lilo_sidecar.intake.ingest import (
    Ingest,
)
from lilo_sidecar.intake.listening import UnixListener, unix_listener
from lilo_sidecar.state.recorder import Recorder


class Intake:
    """A running intake."""

    def __init__(self, path: Path, listener: UnixListener) -> None:
        self.path = path
        self.listener = listener
        self.core = CriticalPath()
        self.ended: list[Timing] = []
        self.ingest = Ingest(Recorder(self.core, None, trio.current_time), self.ended.append)

    async def settle(self) -> None:
        """Return once everything that was sent has been dealt with."""
        await trio.testing.wait_all_tasks_blocked(0.01)


def run(tmp_path: Path, act: Callable[[Intake], Awaitable[None]]) -> Intake:
    """Run ``act`` beside an intake. Seconds pass as soon as everything waits for them."""

    async def main() -> Intake:
        path = tmp_path / "timing.sock"
        with unix_listener(path) as listener:
            intake = Intake(path, listener)
            async with trio.open_nursery() as nursery:
                await nursery.start(intake.ingest.run, listener)
                await act(intake)
                nursery.cancel_scope.cancel()
            return intake

    return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0.02))
