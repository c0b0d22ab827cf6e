"""Weights on their way to the disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from lilo_local.backend import captures as captures_module
from lilo_local.backend.adapters import AdamParameters, AdapterHost, BackendError
from lilo_local.backend.captures import Captures
from lilo_local.backend.sequences import TrainingSequence, Work
from support.local_engine import TINY


def trained_host() -> AdapterHost:
    host = AdapterHost(TINY)
    host.create("a")
    step(host)
    return host


def step(host: AdapterHost) -> None:
    host.forward_backward([Work("a", [TrainingSequence([1, 2, 3], [2, 3, 4])])])
    host.optim_step("a", AdamParameters(learning_rate=0.1))


def load(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = torch.load(path, weights_only=True)
    return loaded


def test_what_is_written_is_what_was_captured(tmp_path: Path) -> None:
    """Training on between capture and write does not change what is written."""
    host = trained_host()
    captures = Captures(host, tmp_path)
    taken: Any = host.snapshot("a", with_optimizer=False)["weights"]
    expected = {name: tensor.clone() for name, tensor in taken.items()}
    name = captures.capture("a", "save_weights_for_sampler")
    step(host)
    size = captures.persist(name, "a/sampler/one.pt")
    (file,) = tmp_path.rglob("*.*")
    assert file == tmp_path / "a/sampler/one.pt"
    assert file.stat().st_size == size
    written = load(file)["weights"]
    assert all(torch.equal(expected[key], written[key]) for key in expected)


def test_a_checkpoint_holds_the_optimizer(tmp_path: Path) -> None:
    """A checkpoint can be trained on from; a sampler needs the weights alone."""
    captures = Captures(trained_host(), tmp_path)
    for kind in ("save_weights", "save_weights_for_sampler"):
        captures.persist(captures.capture("a", kind), f"{kind}.pt")
    assert load(tmp_path / "save_weights.pt")["optimizer"][0]["step"] == 1
    assert "optimizer" not in load(tmp_path / "save_weights_for_sampler.pt")


def test_a_capture_is_written_once_and_inside(tmp_path: Path) -> None:
    """A second write of the same capture, and a path out of the directory, are refused."""
    captures = Captures(trained_host(), tmp_path / "weights")
    name = captures.capture("a", "save_weights")
    captures.persist(name, "a.pt")
    with pytest.raises(BackendError, match="or it has been written"):
        captures.persist(name, "a.pt")
    with pytest.raises(BackendError, match="outside the trainer's directory"):
        captures.persist(captures.capture("a", "save_weights"), "../a.pt")


def test_captures_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the disk stands still, captures stop at the bound, and go on after a write."""
    monkeypatch.setattr(captures_module, "MAX_CAPTURES", 2)
    captures = Captures(trained_host(), tmp_path)
    first = captures.capture("a", "save_weights")
    captures.capture("a", "save_weights")
    with pytest.raises(BackendError, match="2 captured weights wait to be written; retry later"):
        captures.capture("a", "save_weights")
    captures.persist(first, "a.pt")
    captures.capture("a", "save_weights")
