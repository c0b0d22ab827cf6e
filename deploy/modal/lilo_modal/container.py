"""What runs in the container: `lilo-sidecar run` with the trainer as its command. Nothing of Modal.

Modal's functions and classes have no sidecars, and two containers share no Unix socket: so both are
in one, as processes.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Final

READY_TIMEOUT: Final = 600.0
"""Seconds until a trainer that does not serve is given up; large weights take minutes to load."""
DRAIN_TIMEOUT: Final = 24.0
"""Seconds that the trainer gets to finish what it runs and the sidecar to take it in. Modal gives
30 to all that is done at the end, also when the container is preempted."""
_LOOK_INTERVAL: Final = 0.1
"""Seconds between looks whether the trainer serves."""


class TimedTrainer:
    """One trainer and its sidecar. Methods may be called by any thread, one at a time."""

    def __init__(
        self,
        command: Callable[[Path], Sequence[str]],
        *,
        timing_port: int,
        trainer_port: int,
        stdout: IO[str] | int | None = None,
    ) -> None:
        """Start both. ``command`` is given the path of a file with the token and makes the
        trainer's command, which serves on ``trainer_port``; the sidecar serves on ``timing_port``,
        on all addresses, since that is what a tunnel leads to. The token is new."""
        self.token = secrets.token_hex(32)
        """What requests to the sidecar must carry; in a file of this user's alone, in no argument
        and in no variable."""
        self._trainer_port = trainer_port
        self._directory = Path(tempfile.mkdtemp())  # 0700
        try:
            token_file = self._directory / "token"
            token_file.touch(mode=0o600)
            token_file.write_text(self.token, "ascii")
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "lilo_sidecar", "run"),
                    *("--http", f"0.0.0.0:{timing_port}", "--token-file", str(token_file)),
                    *("--", *command(token_file)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                # What Modal signals to this process is for `drain` to pass on, in its order.
                start_new_session=True,
            )
        except BaseException:
            shutil.rmtree(self._directory, ignore_errors=True)
            raise

    def wait_until_serving(self, timeout: float = READY_TIMEOUT) -> None:
        """Return once the trainer's port takes connections. Raises RuntimeError if the trainer ends
        before, or takes longer than ``timeout`` seconds. The sidecar is not waited for: the trainer
        runs whatever becomes of its timing."""
        deadline = time.monotonic() + timeout
        while (status := self._process.poll()) is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self._trainer_port), _LOOK_INTERVAL).close()
                return
            time.sleep(_LOOK_INTERVAL)
        if status is None:
            raise RuntimeError(
                f"the trainer does not serve on port {self._trainer_port} after {timeout:g} s; "
                "see its own messages above"
            )
        raise RuntimeError(
            f"the trainer ended with status {status} before it served; see its own messages above"
        )

    def wait(self) -> int:
        """The trainer's exit status, once it has ended."""
        return self._process.wait()

    def drain(self, timeout: float = DRAIN_TIMEOUT) -> int:
        """Have the trainer end in good order, and its sidecar after it has reported its last; the
        exit status. What is left after ``timeout`` seconds is killed. May be called again."""
        self._process.terminate()  # passed on to the trainer by `lilo-sidecar run`
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            # The sidecar, in a session of its own, ends when `run` has ended.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            return self._process.wait()
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)
