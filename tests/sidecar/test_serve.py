"""What becomes of the daemon when a part of it fails."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from lilo_sidecar.intake.ingest import Ingest
from lilo_sidecar.intake.listening import UnixListener
from lilo_sidecar.options import ServeOptions
from lilo_sidecar.output import LineWriter
from lilo_sidecar.reporter import Reporter
from lilo_sidecar.serve import CRASHED, Daemon
from lilo_sidecar.web.server import HttpServer


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    """The daemon is made for a process of its own and sets what signals do."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("part", "name"),
    [(Ingest, "the intake"), (HttpServer, "the HTTP server"), (Reporter, "the reporter")],
)
def test_part_that_fails_ends_the_daemon_in_good_order(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    part: type,
    name: str,
) -> None:
    """Never silently: the log says which part and why, the last line is printed, the socket is
    removed, and the status is not 0."""

    async def run(self: object, *arguments: object, **options: object) -> None:
        options["task_status"].started()  # type: ignore[attr-defined]
        await trio.lowlevel.checkpoint()
        raise RuntimeError("broken")

    monkeypatch.setattr(part, "run", run)
    path = tmp_path / "timing.sock"
    options = ServeOptions(
        path, socket.AF_INET, ("127.0.0.1", 0), 300.0, None, False, tmp_path / "s"
    )
    reading, writing = os.pipe()
    lines = LineWriter(writing)
    assert trio.run(Daemon(options).run, lines) == CRASHED
    lines.close(10)
    os.close(writing)
    with os.fdopen(reading) as output:
        events = [json.loads(line) for line in output]
    assert [line["event"] for line in events] == ["lilo_sidecar_ready", "lilo_critical_path"]
    assert events[-1]["reason"] == "shutdown"
    assert not path.exists()
    assert f"{name} failed" in caplog.text
    assert "broken" in caplog.text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_first_signal_drains_and_the_next_one_would_end_it_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """What was sent is taken in first; meanwhile the system's own default is in place for both
    signals, so that nothing can delay a second one."""
    drained: list[Ingest] = []
    drain = Ingest.drain

    async def watched(self: Ingest, listener: UnixListener) -> None:
        drained.append(self)
        await drain(self, listener)

    monkeypatch.setattr(Ingest, "drain", watched)
    options = ServeOptions(
        tmp_path / "timing.sock",
        socket.AF_INET,
        ("127.0.0.1", 0),
        300.0,
        None,
        False,
        tmp_path / "timing.state",
    )
    reading, writing = os.pipe()
    lines = LineWriter(writing)

    async def main() -> int:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(signal_when_ready)
            return await Daemon(options).run(lines)

    async def signal_when_ready() -> None:
        await trio.lowlevel.wait_readable(reading)
        os.kill(os.getpid(), number)

    assert trio.run(main) == 0
    assert len(drained) == 1
    assert signal.getsignal(signal.SIGTERM) == signal.getsignal(signal.SIGINT) == signal.SIG_DFL
    lines.close(10)
    os.close(writing)
    os.close(reading)
