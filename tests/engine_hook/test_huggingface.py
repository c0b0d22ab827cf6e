"""The callback for Hugging Face's Trainer: tiny real models, trained in one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.sidecar import SidecarProcess, start_sidecar

TESTS = Path(__file__).parents[1]


class Trained:
    """A process that has trained, and the sidecar that it told."""

    def __init__(self, sidecar: SidecarProcess, said: dict[str, Any]) -> None:
        self.sidecar = sidecar
        self.measured: dict[str, float] = said["measured"]
        self.steps: int = said["steps"]
        self.micro_batches: int = said["micro_batches"]
        """Of each step."""
        self.raised_calls: dict[str, int] = said["raised_calls"]
        self.broken_steps: int = said["broken_steps"]
        self.copy_shares: bool = said["copy_shares"]
        """The original's connection."""
        self.named_copy_shares: bool = said["named_copy_shares"]
        """Where a subclass has it by another name, too."""
        self.opened_by_closing: bool = said["opened_by_closing"]
        """A connection, by an unpickled one that was never used."""
        self.opened_by_unpickling: int = said["opened_by_unpickling"]
        """Threads."""

    def counts(self, model_id: str) -> dict[str, int]:
        """How often each phase happened."""
        answer = self.sidecar.timing(model_id)
        assert answer["interval"]["complete"]
        return {name: phase["count"] for name, phase in answer["phases"].items()}


def train(directory: Path, socket: Path, **environment: str) -> dict[str, Any]:
    out = subprocess.run(
        [sys.executable, "-m", "support.huggingface_training", str(directory)],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]),
            "LILO_TIMING_SOCKET": str(socket),
            "HF_HUB_OFFLINE": "1",
            "ACCELERATE_USE_CPU": "true",
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert out.returncode == 0, out.stderr
    said: dict[str, Any] = json.loads(out.stdout.splitlines()[-1])
    return said


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trained]:
    directory = tmp_path_factory.mktemp("hf")
    with start_sidecar(directory) as sidecar:
        yield Trained(sidecar, train(directory, sidecar.socket))


def test_the_documents_example_gives_the_steps_figures(trained: Trained) -> None:
    """A command for each step and each optimizer step, an execution for each micro-batch, each
    save and each evaluation."""
    assert trained.counts("my-model") == {
        "accept.queue_wait": 1,
        "accept.execute": 1,
        "forward_backward.queue_wait": trained.steps,
        "forward_backward.execute": trained.steps * trained.micro_batches,
        "optim_step.queue_wait": trained.steps,
        "optim_step.execute": trained.steps,
        "save_weights.execute": 2,
        "evaluate.execute": 1,
    }


def test_the_figures_are_those_that_the_trainer_measures_of_itself(trained: Trained) -> None:
    """No less than the trainer's own methods took, and no more than there was: an evaluation is in
    no save, and nothing is counted twice."""
    answer = trained.sidecar.timing("my-model")
    phases, step, measured = answer["phases"], answer["step"], trained.measured
    for phase, method in (
        ("forward_backward", "training_step"),
        ("save_weights", "_save_checkpoint"),
        ("evaluate", "evaluation_loop"),
    ):
        assert phases[f"{phase}.execute"]["total_s"] >= measured[method] - 1e-3, phase
    executed = sum(phase["total_s"] for name, phase in phases.items() if "execute" in name)
    assert step["mine_s"] == pytest.approx(executed, abs=1e-3)
    assert step["wall_s"] <= measured["wall"]
    assert executed <= step["wall_s"]


def test_a_training_that_stops_between_micro_batches(trained: Trained) -> None:
    """What ran is counted, and nothing that did not."""
    counts = trained.counts("stopped")
    assert counts["forward_backward.execute"] == trained.micro_batches + 1
    assert counts["optim_step.execute"] == 1
    assert trained.sidecar.timing("stopped")["lanes"] == {}


def test_a_training_that_an_exception_ended_goes_on_anew(trained: Trained) -> None:
    """The step that broke has no execution of its optimizer, and does not stay open; the second
    training is whole."""
    counts = trained.counts("raised")
    assert counts["forward_backward.execute"] == (trained.steps + 1) * trained.micro_batches
    assert counts["optim_step.execute"] == trained.steps
    assert trained.sidecar.timing("raised")["lanes"] == {}
    assert trained.raised_calls["begin"] == trained.raised_calls["finish"] == 2 + 2 * trained.steps


def test_an_observer_that_raises_is_not_felt(trained: Trained) -> None:
    """The training goes through all its steps."""
    assert trained.broken_steps == trained.steps


def test_copies_of_a_callback_report_trainings_of_their_own(trained: Trained) -> None:
    """Made in the middle of a step, which stays the original's. A copy shares its connection; the
    pickled one opens its own, once it is used."""
    assert trained.copy_shares
    assert trained.named_copy_shares
    assert trained.opened_by_unpickling == 0
    assert not trained.opened_by_closing
    for model_id, trainings in (("copied", 2), ("pickled", 1)):
        counts = trained.counts(model_id)
        steps = trainings * trained.steps
        assert counts["accept.execute"] == trainings
        assert counts["forward_backward.queue_wait"] == counts["optim_step.execute"] == steps
        assert counts["forward_backward.execute"] == steps * trained.micro_batches
        assert trained.sidecar.timing(model_id)["lanes"] == {}


def test_without_transformers_the_import_says_what_to_install() -> None:
    """The hook itself goes on working."""
    script = """
import sys
sys.modules["transformers"] = None
import lilo_engine_hook
try:
    import lilo_engine_hook.huggingface
except ImportError as error:
    print(error)
"""
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "pip install 'lilo-timing[huggingface]'" in out.stdout
