"""``python -m lilo_local.tenant``: one tenant's training loop.

The control plane's URL and the API key come from TINKER_BASE_URL and TINKER_API_KEY. Each event
is a JSON line on stdout; without a run of W&B the timing reports are printed there too.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from .client import OperationFailedError, TrainingClient
from .loop import Plan, train


def _tell(event: str, **fields: Any) -> None:
    # One write: the timing client's thread prints, too.
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


def plan_of(arguments: Sequence[str]) -> Plan:
    """What a command line asks for. Exits with status 2 where it is no valid one."""
    parser = argparse.ArgumentParser(prog="lilo_local.tenant", description=__doc__)
    parser.add_argument("--part", type=int, default=0, help="which part of the text")
    parser.add_argument("--parts", type=int, default=1, help="of how many")
    parser.add_argument("--sequences", type=int, default=4, help="of each pass")
    parser.add_argument("--accumulate", type=int, default=1, help="passes of each step")
    parser.add_argument("--length", type=int, default=64, help="tokens of a sequence")
    parser.add_argument("--learning-rate", type=float, default=8e-3)
    parser.add_argument("--steps", type=int, default=1000, help="at most")
    parser.add_argument("--seconds", type=float, default=20.0, help="no step begins after that")
    return Plan(**vars(parser.parse_args(arguments)))


def main() -> int:
    """The command line; the exit status."""
    plan = plan_of(sys.argv[1:])
    try:
        client = TrainingClient(os.environ["TINKER_BASE_URL"], os.environ["TINKER_API_KEY"])
    except KeyError as error:
        print(f"lilo_local.tenant: set {error}", file=sys.stderr)
        return 2
    try:
        train(client, plan, _tell)
    except OperationFailedError as error:
        print(f"lilo_local.tenant: {error}", file=sys.stderr)
        return 1
    finally:
        client.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
