"""The training loop: where a user's code calls the timing client."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import lilo_timing

from .client import TrainingClient
from .data import Sampler, part

EVALUATE_EVERY: Final = 5
SAVE_EVERY: Final = 8
"""Steps between two exports of weights for a sampler."""
DELIVERY_TIMEOUT: Final = 5.0
"""Seconds the timing of the last commands may take to arrive; it takes a twentieth of one."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a tenant trains, and for how long."""

    part: int
    parts: int
    sequences: int
    """Of each pass."""
    accumulate: int
    """Passes before each optimizer step."""
    length: int
    """Tokens of a sequence."""
    learning_rate: float
    steps: int
    """At most."""
    seconds: float
    """No step begins after that long."""


def train(client: TrainingClient, plan: Plan, tell: Callable[..., None]) -> None:
    """Create a model, train it, report each step's timing, save it, and let go of it. ``tell``
    is told events as keyword arguments.

    Raises `OperationFailedError`.
    """
    sampler = Sampler(part(plan.part, plan.parts), length=plan.length, seed=plan.part)
    held_out = Sampler(part(plan.part, plan.parts), length=plan.length, seed=1000 + plan.part)
    evaluation = held_out.draw(2)
    model_id = client.create_model()
    tell("tenant_started", model_id=model_id)
    adam = {"adam_params": {"learning_rate": plan.learning_rate}}
    export = None
    deadline = time.monotonic() + plan.seconds
    step = 0
    while step < plan.steps and (step == 0 or time.monotonic() < deadline):
        step += 1
        # All of the step is in the trainer's queue before its first command has run.
        passes = [
            client.submit("forward_backward", {"data": sampler.draw(plan.sequences)})
            for _ in range(plan.accumulate)
        ]
        update = client.submit("optim_step", adam)
        losses = [client.result(backward)["loss"] for backward in passes]
        client.result(update)
        lilo_timing.log_critical_path(model_id, step=step)
        tell("tenant_step", step=step, loss=sum(losses) / len(losses))
        if step % EVALUATE_EVERY == 0:
            client.run("forward", {"data": evaluation})
        if step % SAVE_EVERY == 0:
            if export is not None:
                client.result(export)
            # Its write goes on beside the next steps.
            export = client.submit("save_weights_for_sampler", {"name": f"step-{step}"})
    if export is not None:
        client.result(export)
    client.run("save_weights", {"name": "final"})
    report_last(model_id, step)
    client.unload()


def report_last(model_id: str, step: int) -> None:
    """The last report, once the timing of everything this loop did has arrived at the sidecar.
    The one checkpoint was its last command: the trainer reports its end, and its backend the time
    on the device, each in order and neither before the other."""
    lilo_timing.flush_critical_path()
    deadline = time.monotonic() + DELIVERY_TIMEOUT
    while time.monotonic() < deadline:
        metrics: dict[str, Any] = dict(lilo_timing.critical_path_metrics(model_id, reset=False))
        if all(metrics.get(f"lilo/save_weights.{part}.count") for part in ("persist", "device")):
            break
        time.sleep(0.02)
    lilo_timing.log_critical_path(model_id, step=step)
    lilo_timing.flush_critical_path()
