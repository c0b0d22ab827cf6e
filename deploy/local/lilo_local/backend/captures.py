"""Weights that were captured from the model and wait to be written."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final

import torch

from .adapters import AdapterHost, BackendError

MAX_CAPTURES: Final = 64
"""Snapshots held at once: each is the size of an adapter, and each persistence lane writes one at
a time. Reached only when the disk stands still."""
WITH_OPTIMIZER: Final = frozenset({"save_weights"})
"""A checkpoint to train on from needs the moments, a sampler only the weights."""


class Captures:
    """`capture` is quick and holds up the model; `persist` is slow and does not."""

    def __init__(self, host: AdapterHost, directory: Path) -> None:
        self._host = host
        self._directory = directory
        self._taken: dict[str, dict[str, object]] = {}

    def capture(self, adapter: str, kind: str) -> str:
        """Copy the adapter's weights for ``kind`` and return the name of the copy."""
        if len(self._taken) >= MAX_CAPTURES:
            raise BackendError(f"{MAX_CAPTURES} captured weights wait to be written; retry later")
        name = secrets.token_hex(8)
        self._taken[name] = self._host.snapshot(adapter, with_optimizer=kind in WITH_OPTIMIZER)
        return name

    def persist(self, name: str, path: str) -> int:
        """Write a copy under ``path``, a relative one, whole or not at all; its size in bytes.
        May run on another thread than everything else. The copy is gone afterwards."""
        taken = self._taken.pop(name, None)
        if taken is None:
            raise BackendError(f"nothing was captured under {name}, or it has been written")
        target = (self._directory / path).resolve()
        if not target.is_relative_to(self._directory.resolve()):
            raise BackendError(f"{path} is outside the trainer's directory")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            return _write(taken, target, target.with_suffix(f".{name}.tmp"))
        except OSError as error:
            # No path in it: the message goes to the client.
            raise BackendError(f"the weights could not be written: {error.strerror}") from error


def _write(taken: dict[str, object], target: Path, temporary: Path) -> int:
    try:
        with temporary.open("wb") as file:
            torch.save(taken, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return target.stat().st_size
