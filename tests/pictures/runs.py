"""Real offline W&B runs: the demonstration's tenants on a real trainer, one run each."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any, Final

from lilo_local.demo.deployment import Deployment
from lilo_local.demo.processes import Inbox
from lilo_local.demo.run import GRACE, TENANTS
from support.wandb_history import history

_TESTS: Final = str(Path(__file__).parents[1])


def rows_of_tenants(seconds: float, directory: Path) -> dict[str, list[dict[str, Any]]]:
    """Let the tenants train for so long; each one's rows, read back from its run's file, which
    is kept in ``directory``. Raises `ChildFailedError` where a process failed."""
    files: dict[str, str] = {}
    inbox = Inbox()
    environment = {
        "WANDB_DIR": str(directory),
        "PYTHONPATH": os.pathsep.join([_TESTS, os.environ.get("PYTHONPATH", "")]),
    }
    with Deployment(trainers=1, tenants=list(TENANTS), inbox=inbox) as deployment:
        common = ["--parts", str(len(TENANTS)), "--seconds", str(seconds)]
        for index, (name, shape) in enumerate(TENANTS.items()):
            options = [*common, *shape, "--part", str(index)]
            deployment.start(
                name,
                [sys.executable, "-m", "pictures.tenant", name, *options],
                TINKER_BASE_URL=deployment.url,
                TINKER_API_KEY=deployment.tenant_keys[name],
                **environment,
            )
        training = set(TENANTS)
        deadline = time.monotonic() + seconds + GRACE
        while training:
            line = inbox.get(deadline - time.monotonic())
            child = deployment.children[line.source]
            if line.event is not None:
                if line.event.get("event") == "wandb_run":
                    files[line.source] = line.event["file"]
            elif line.source not in training or child.process.wait():
                raise child.failure("failed")
            else:
                training.discard(line.source)
    return {name: history(files[name]) for name in TENANTS}
