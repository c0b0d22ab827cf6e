"""``python -m lilo_local.demo``: everything on this machine for half a minute, and then a table of
where the time went."""

import argparse
import signal
import sys
from pathlib import Path
from typing import Any

MAX_TRAINERS = 8
"""Each takes half a gigabyte and a core."""


def main() -> int:
    """The command line; the exit status."""
    # Until there is something to end, an interrupt just ends this process, without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    parser = argparse.ArgumentParser(prog="lilo_local.demo", description=__doc__)
    parser.add_argument(
        "--trainers",
        type=int,
        default=1,
        choices=range(1, MAX_TRAINERS + 1),
        metavar="N",
        help=f"how many trainers, each with its own sidecar (default 1, at most {MAX_TRAINERS})",
    )
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="how long the tenants train (default 20)"
    )
    parser.add_argument("--steps", type=int, default=1000, help="at most, for each tenant")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the table's figures there, too"
    )
    parser.add_argument(
        "--observer",
        metavar="MODULE:FACTORY",
        help="one more observer for each trainer's engine, beside the timing observer",
    )
    options = parser.parse_args()

    # Imported here: this takes a moment, and the line above is to come before.
    from .processes import ChildFailedError, Inbox, StoppedError
    from .run import run

    inbox = Inbox()
    ended_by: list[int] = []

    def stop(number: int, _: Any) -> None:
        ended_by.append(number)
        inbox.stop()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    try:
        run(options, inbox)
    except StoppedError:
        print("stopped; nothing is left running", file=sys.stderr)
        return 128 + ended_by[0]
    except ChildFailedError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
