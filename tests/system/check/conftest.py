"""A sidecar to check, with a trainer or without, and no socket in the environment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.checking import sidecar_at
from support.feed import begin, span
from support.producer import Producer
from support.sidecar import SidecarProcess


@pytest.fixture(autouse=True)
def _no_socket_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LILO_TIMING_SOCKET", raising=False)


@pytest.fixture
def sidecar(tmp_path: Path) -> Iterator[SidecarProcess]:
    with sidecar_at(tmp_path / "timing.sock") as running_one:
        yield running_one


@pytest.fixture
def trainer(sidecar: SidecarProcess) -> Iterator[Producer]:
    """One that has reported an operation: nothing is wrong."""
    with Producer(sidecar.socket) as producer:
        producer.greet()
        producer.send(begin("m", 1, 1.0), span(["m"], 2.0, 3.0, ids=["m:1"]))
        yield producer
