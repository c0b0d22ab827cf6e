"""What the tests of the local deployment share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from support.receiver import Receiver, receiver

torch.set_num_threads(1)


@pytest.fixture
def timing_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """Where engines of this test report to; it acknowledges, so that closing one is quick."""
    path = tmp_path / "timing.sock"
    monkeypatch.setenv("LILO_TIMING_SOCKET", str(path))
    with receiver(path) as far_end:
        yield far_end
