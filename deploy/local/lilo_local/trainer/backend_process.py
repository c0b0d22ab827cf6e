"""The backend as a child process, for as long as the trainer runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import httpx
import trio

from ..engine import HttpBackend

STOP_TIMEOUT: Final = 5.0
"""Seconds the backend gets to end before it is killed."""


@asynccontextmanager
async def running_backend(
    directory: Path, starting: trio.CancelScope
) -> AsyncIterator[HttpBackend | None]:
    """Start a backend and yield a client of it once it is there; end it afterwards. Yields None
    if ``starting`` is cancelled first. Raises RuntimeError if it ends before it is ready.

    Its standard input is a pipe that this process never writes to: it closes when this process
    ends, however it does, and the backend ends with it. A session of its own keeps a terminal's
    Ctrl-C from it: this process decides when it stops.
    """
    command = [sys.executable, "-m", "lilo_local.backend", "--directory", str(directory)]
    process = await trio.lowlevel.open_process(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        url = None
        with starting:
            url = await _ready(process)
        if url is None:
            yield None
        else:
            async with httpx.AsyncClient(base_url=url) as client:
                yield HttpBackend(client)
    finally:
        with trio.CancelScope(shield=True):
            await _stop(process)


async def _ready(process: trio.Process) -> str:
    assert process.stdout is not None
    line = bytearray()
    async for chunk in process.stdout:
        line += chunk
        if b"\n" in line:
            return str(json.loads(line)["http"])
    raise RuntimeError(
        f"the backend ended before it was ready, with status {await process.wait()}; "
        "its own messages are above"
    )


async def _stop(process: trio.Process) -> None:
    if process.returncode is None:
        process.terminate()
    with trio.move_on_after(STOP_TIMEOUT):
        await process.wait()
    if process.returncode is None:
        process.kill()
        await process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            await stream.aclose()
