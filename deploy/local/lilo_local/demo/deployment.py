"""Trainers with their sidecars, and a control plane, as processes on this machine."""

from __future__ import annotations

import json
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from .processes import STOP_TIMEOUT, Child, ChildFailedError, Inbox, stop_all

START_TIMEOUT: Final = 60.0
"""Seconds until everything answers: importing torch takes a few, on a cold disk many."""
_SIDECAR_READY: Final = "lilo_sidecar_ready"
_TRAINER_READY: Final = "lilo_local_trainer_ready"
_CONTROL_PLANE_READY: Final = "lilo_local_control_plane_ready"


class Deployment:
    """A context manager: everything runs inside, nothing is left after it, not even files.

    Entering raises `ChildFailedError`, or `StoppedError` when the inbox says so. Leaving raises
    `ChildFailedError` if a process did not end by itself and had to be killed.
    """

    def __init__(
        self,
        *,
        trainers: int,
        tenants: Sequence[str],
        inbox: Inbox,
        trainer_options: Sequence[str] = (),
    ) -> None:
        self.inbox = inbox
        self.tenant_keys = {name: f"key-{secrets.token_urlsafe(16)}" for name in tenants}
        self.operator_key = f"key-{secrets.token_urlsafe(16)}"
        self.url = ""
        """Of the control plane."""
        self.trainers: dict[str, dict[str, str]] = {}
        """By name: ``url``, ``sidecar`` (its URL), ``token`` and ``socket``."""
        self.children: dict[str, Child] = {}
        self._count = trainers
        self._trainer_options = trainer_options
        self._directory = Path()

    def __enter__(self) -> Deployment:
        # Short, since a Unix socket's path may have 107 bytes; and open to nobody else (0700).
        self._directory = Path(tempfile.mkdtemp(prefix="lilo-"))
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        killed = self.stop()
        if killed and not isinstance(error, ChildFailedError):
            raise ChildFailedError(
                f"{', '.join(killed)} did not end within {STOP_TIMEOUT:.0f} s and had to be killed"
            )

    def start(self, name: str, command: Sequence[str], **environment: str) -> Child:
        """One more process, ended with the rest."""
        log = self._directory / f"{name}.log"
        environment = {
            # Libraries leave temporary files behind, torch's compiler a whole directory.
            "TMPDIR": str(self._directory),
            # They speak to each other on loopback alone, whatever proxy leads out of here.
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
            **environment,
        }
        child = Child(name, command, inbox=self.inbox, log=log, environment=environment)
        self.children[name] = child
        return child

    def start_tenant(self, name: str, *options: str) -> Child:
        """A tenant's training loop, under its own key."""
        return self.start(
            name,
            [sys.executable, "-m", "lilo_local.tenant", *options],
            TINKER_BASE_URL=self.url,
            TINKER_API_KEY=self.tenant_keys[name],
        )

    def stop(self) -> list[str]:
        """End everything, those first that use the others; the names of what was killed."""
        trainers = [child for name, child in self.children.items() if name in self.trainers]
        others = [child for name, child in self.children.items() if name not in self.trainers]
        killed = stop_all(others[::-1]) + stop_all(trainers)
        self.children.clear()
        shutil.rmtree(self._directory, ignore_errors=True)
        return killed

    def _start(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        names = [f"trainer-{number}" for number in range(1, self._count + 1)]
        for name in names:
            self._start_trainer(name)
        urls = self._ready(names, (_SIDECAR_READY, _TRAINER_READY), deadline)
        for name in names:
            self.trainers[name]["sidecar"] = urls[name][_SIDECAR_READY]
            self.trainers[name]["url"] = urls[name][_TRAINER_READY]
        config = self._directory / "control-plane.json"
        config.touch(0o600)
        config.write_text(
            json.dumps(
                {
                    "tenants": self.tenant_keys,
                    "operator_key": self.operator_key,
                    "trainers": self.trainers,
                }
            )
        )
        command = [sys.executable, "-m", "lilo_local.control_plane", "--config", str(config)]
        self.start("control-plane", command)
        ready = self._ready(["control-plane"], (_CONTROL_PLANE_READY,), deadline)
        self.url = ready["control-plane"][_CONTROL_PLANE_READY]

    def _start_trainer(self, name: str) -> None:
        directory = self._directory / name
        directory.mkdir()
        token_file = directory / "token"
        token_file.touch(0o600)
        token = secrets.token_urlsafe(24)
        token_file.write_text(token)
        socket = directory / "timing.sock"
        self.trainers[name] = {"token": token, "socket": str(socket)}
        sidecar = [sys.executable, "-m", "lilo_sidecar", "run", "--socket", str(socket)]
        sidecar += ["--http", "127.0.0.1:0", "--token-file", str(token_file)]
        trainer = [sys.executable, "-m", "lilo_local.trainer", "--directory", str(directory)]
        trainer += ["--token-file", str(token_file), *self._trainer_options]
        self.start(name, [*sidecar, "--", *trainer])

    def _ready(
        self, names: Sequence[str], events: Sequence[str], deadline: float
    ) -> dict[str, dict[str, str]]:
        """Wait until each process has said all of ``events``; the URLs they came with. Raises
        `ChildFailedError`."""
        urls: dict[str, dict[str, str]] = {name: {} for name in names}
        while waiting := [name for name in names if len(urls[name]) < len(events)]:
            try:
                line = self.inbox.get(deadline - time.monotonic())
            except TimeoutError:
                failed = self.children[waiting[0]]
                raise failed.failure(f"was not ready within {START_TIMEOUT:.0f} s") from None
            if line.event is None:
                raise self.children[line.source].failure("ended while it was starting")
            if line.event.get("event") in events:
                urls[line.source][str(line.event["event"])] = str(line.event["http"])
        return urls
