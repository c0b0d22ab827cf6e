"""The metrics as they are in other loggers than W&B: written by the real ones as the page of charts
says, and read back by their own readers."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow import MlflowClient
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

from lilo_engine_hook import wire
from support.producer import Producer
from support.sidecar import start_sidecar
from support.snippets import snippet

WORK = (2, 1, 3)
"""Executions in each step."""

Metrics = dict[str, float]


def logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logger: str, **names: Any
) -> list[Metrics]:
    """Run what the page says of a logger after each step of a model; the metrics that it took."""
    taken = []
    with start_sidecar(tmp_path) as sidecar, Producer(sidecar.socket) as producer:
        monkeypatch.setenv("TINKER_BASE_URL", sidecar.url)
        producer.greet()
        producer.send(wire.Register(0.0, "m"))
        for step, executions in enumerate(WORK):
            for _ in range(executions):
                producer.work(seconds=0.125)
            scope: dict[str, Any] = {"model_id": "m", "step": step, **names}
            exec(snippet("CHARTS.md", logger), scope)
            taken.append(scope["metrics"])
    return taken


def assert_same(
    taken: list[Metrics],
    read: Callable[[str], list[tuple[int, float]]],
    kept: Callable[[float], Any],
) -> None:
    """Every metric of every step is there, at its step; the counts are those of the work."""
    assert read("lilo/forward_backward.execute.count") == list(enumerate(WORK))
    for name in set().union(*taken):
        wanted = [(step, kept(m[name])) for step, m in enumerate(taken) if name in m]
        assert read(name) == wanted, name


def test_tensorboard_takes_the_metrics_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each one is a scalar of its name at the loop's step, in the 32 bits that TensorBoard has."""
    directory = str(tmp_path / "events")
    with SummaryWriter(directory) as writer:
        taken = logged(tmp_path, monkeypatch, "TensorBoard", writer=writer)
    events = EventAccumulator(directory)
    events.Reload()

    def read(name: str) -> list[tuple[int, float]]:
        return [(event.step, event.value) for event in events.Scalars(name)]

    def short(value: float) -> float:
        return float(struct.unpack("f", struct.pack("f", value))[0])

    assert set(events.Tags()["scalars"]) == set().union(*taken)
    assert_same(taken, read, short)


def test_mlflow_takes_the_metrics_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No name is refused, and each metric has its history, to the last bit."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    mlflow.set_tracking_uri(f"file://{tmp_path}/mlruns")
    with mlflow.start_run() as run:
        taken = logged(tmp_path, monkeypatch, "MLflow")
    client = MlflowClient()

    def read(name: str) -> list[tuple[int, float]]:
        return [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, name)]

    assert_same(taken, read, float)
