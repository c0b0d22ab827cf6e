"""A `lilo-sidecar run` as a process, and what its command says."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

from lilo_engine_hook import wire
from support.producer import hello_frame
from support.sidecar import TIMEOUT, Output, launch

REPORT = """
import json, os
print(json.dumps({"event": "environment", "pid": os.getpid(), "group": os.getpgrp(),
    "socket": os.environ["LILO_TIMING_SOCKET"], "url": os.environ.get("LILO_TIMING_URL")}),
    flush=True)
"""


def finished(*arguments: str | Path, **kwargs: Any) -> tuple[int, list[str], list[str]]:
    """Run to the end: status, stdout, stderr."""
    process = launch("run", *arguments, **kwargs)
    out, err = process.communicate(timeout=TIMEOUT)
    return process.returncode, out.splitlines(), err.splitlines()


def listener_of(path: Path) -> int | None:
    """The process that answers on the socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(TIMEOUT)
        try:
            probe.connect(os.fspath(path))
            probe.sendall(hello_frame("probe", "backend"))
            answers = list(wire.FrameBuffer().feed(probe.recv(4096)))
        except OSError:
            return None
        if not answers:
            return None
        data = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        return int.from_bytes(data[:4], sys.byteorder)


class Run:
    """A run whose command is a Python script that has said where it is."""

    def __init__(self, tmp_path: Path, script: str, *options: str | Path, **kwargs: Any) -> None:
        code = REPORT + script
        self.path = tmp_path / "timing.sock"
        self.process = launch(
            *("run", "--socket", self.path, *options, "--", sys.executable, "-c", code), **kwargs
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.stdout, self.log = Output(self.process.stdout), Output(self.process.stderr)
        self.command = json.loads(self.stdout.wait_for(lambda line: '"environment"' in line))

    def sidecar(self) -> int | None:
        """The process that answers on the socket."""
        return listener_of(self.path)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()
