"""``python -m pictures.tenant NAME [options of lilo_local.tenant]``: a tenant of the demonstration
that logs to an offline W&B run, as a researcher's loop does. Says in a JSON line where its file is.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import wandb

from lilo_local.tenant.__main__ import plan_of
from lilo_local.tenant.client import TrainingClient
from lilo_local.tenant.loop import train


def main() -> None:
    """The command line. W&B keeps its files in WANDB_DIR."""
    name, *arguments = sys.argv[1:]
    plan = plan_of(arguments)
    client = TrainingClient(os.environ["TINKER_BASE_URL"], os.environ["TINKER_API_KEY"])
    settings = wandb.Settings(mode="offline", console="off", silent=True, x_disable_stats=True)
    with wandb.init(project="lilo", name=name, settings=settings) as run:
        file = run.settings.sync_file

        def tell(event: str, **fields: Any) -> None:
            if event == "tenant_step":
                run.log({"loss": fields["loss"]})

        train(client, plan, tell)
    client.close()
    print(json.dumps({"event": "wandb_run", "file": file}))


if __name__ == "__main__":
    main()
