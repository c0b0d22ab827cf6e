"""A sidecar whose log leaves nothing out, for tests that look at every line of it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from support.sidecar import SidecarProcess, running

_CODE = """
import sys
from lilo_sidecar.intake import throttle
throttle.PERIOD = 0.0
from lilo_sidecar.cli import main
sys.exit(main())
"""


@contextlib.contextmanager
def start_unthrottled(tmp_path: Path) -> Iterator[SidecarProcess]:
    """As `start_sidecar`, without options."""
    command = [
        sys.executable,
        "-P",
        "-c",
        _CODE,
        "serve",
        "--socket",
        str(tmp_path / "timing.sock"),
    ]
    process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with running(process) as sidecar:
        yield sidecar
