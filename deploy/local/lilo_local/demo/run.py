"""The demonstration from beginning to end."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from typing import Any, Final

import httpx
from rich.console import Console

from .deployment import Deployment
from .processes import Inbox
from .progress import Progress
from .steps import sentence, step_bars
from .table import closing_table

TENANTS: Final[Mapping[str, tuple[str, ...]]] = {
    # 2,048 tokens a pass: the whole budget of a batch, so it never shares one.
    "heavy": ("--sequences", "16", "--length", "128"),
    "light": ("--sequences", "4", "--length", "64", "--accumulate", "3"),
    "tiny": ("--sequences", "2", "--length", "64", "--accumulate", "3"),
}
"""And the shape of their steps. The two small ones fit into one batch together."""
GRACE: Final = 30.0
"""Seconds beyond the training time after which a tenant is taken for stuck."""
FRESH_TIMEOUT: Final = 15.0
"""Seconds to wait for the control plane's next look at the trainers; it looks each second."""


def run(options: argparse.Namespace, inbox: Inbox) -> None:
    """Start everything, let the tenants train, show the table, end everything. Raises
    `ChildFailedError` or `StoppedError`, after ending everything."""
    console = Console(highlight=False, soft_wrap=True)
    trainer_options = () if options.observer is None else ("--observer", options.observer)
    began = time.monotonic()
    console.print(
        f"starting {_plural(options.trainers, 'trainer')}, with sidecar and torch backend, "
        "and a control plane ..."
    )
    with Deployment(
        trainers=options.trainers,
        tenants=list(TENANTS),
        inbox=inbox,
        trainer_options=trainer_options,
    ) as deployment:
        console.print(f"ready after {time.monotonic() - began:.1f} s at {deployment.url}")
        for name, trainer in deployment.trainers.items():
            console.print(
                f"watch {name} at {trainer['sidecar']}/ with the token {trainer['token']}"
            )
        console.print(f"{_plural(len(TENANTS), 'tenant')} train on the standard library's sources")
        progress = Progress(console, TENANTS)
        _train(deployment, progress, options)
        aggregates = _aggregates(deployment)
        console.print(closing_table(progress.sections()))
        console.print(step_bars(progress.steps()))
        for name, parts in progress.steps().items():
            console.print(sentence(name, parts))
        console.print()
        progress.summary()
    console.print("everything has stopped")
    if options.json is not None:
        figures = {"tenants": progress.to_json(), "trainers": aggregates}
        options.json.write_text(json.dumps(figures))


def _train(deployment: Deployment, progress: Progress, options: argparse.Namespace) -> None:
    common = ["--parts", str(len(TENANTS))]
    common += ["--steps", str(options.steps), "--seconds", str(options.seconds)]
    for index, (name, shape) in enumerate(TENANTS.items()):
        deployment.start_tenant(name, *common, *shape, "--part", str(index))
    training = set(TENANTS)
    deadline = time.monotonic() + options.seconds + GRACE
    while training:
        try:
            line = deployment.inbox.get(deadline - time.monotonic())
        except TimeoutError:
            stuck = deployment.children[min(training)]
            raise stuck.failure(f"did not end within {GRACE:.0f} s of its time") from None
        child = deployment.children[line.source]
        if line.event is not None:
            progress.tell(line.source, line.event)
        elif line.source not in training:
            raise child.failure("ended before its time")
        else:
            status = child.process.wait()
            if status:
                raise child.failure(f"failed with status {status}")
            training.discard(line.source)


def _aggregates(deployment: Deployment) -> dict[str, dict[str, Any]]:
    """Each trainer's phases, all models together, as the control plane's poller has them once it
    has looked again."""
    finished = time.monotonic()
    headers = {"X-API-Key": deployment.operator_key}
    with httpx.Client(base_url=deployment.url, headers=headers, trust_env=False) as client:
        while True:
            answer = client.get("/api/v1/trainers").raise_for_status().json()
            trainers = answer["trainers"]
            since = time.monotonic() - finished
            if all(t["age_s"] is not None and t["age_s"] < since for t in trainers):
                return {t["name"]: t["answer"]["phases"] for t in trainers}
            if since > FRESH_TIMEOUT:
                raise deployment.children["control-plane"].failure(
                    f"has no fresh timing of the trainers after {FRESH_TIMEOUT:.0f} s"
                )
            time.sleep(0.1)


def _plural(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")
