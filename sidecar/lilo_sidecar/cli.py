"""The `lilo-sidecar` command."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

USAGE_ERROR: Final = 2
"""Exit status when the sidecar cannot start as it was asked to."""
_CLOSE_TIMEOUT: Final = 0.5
"""Seconds at the end for each of stdout and stderr to take what is left."""
_EXTRA: Final = frozenset({"trio", "hypercorn", "starlette"})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status. Never raises for what is the operator's to mend: that
    is one line on stderr."""
    try:
        return _main(sys.argv[1:] if arguments is None else arguments)
    except ModuleNotFoundError as error:
        if error.name not in _EXTRA:
            raise
        return _refuse(
            f"the package {error.name} is missing; "
            "install the sidecar with: pip install 'lilo-timing[sidecar]'"
        )


def _main(arguments: Sequence[str]) -> int:
    # Imported here, so that a missing extra becomes a sentence.
    import trio

    from .errors import StartError
    from .options import RunOptions, parse
    from .output import LineWriter, keep_standard_descriptors, log_to
    from .run import Supervisor
    from .serve import Daemon

    keep_standard_descriptors()
    try:
        options = parse(arguments)
    except StartError as error:
        return _refuse(str(error))
    lines, log = LineWriter(1), LineWriter(2)
    log_to(log)
    try:
        job: Callable[[], Awaitable[int]]
        if isinstance(options, RunOptions):
            job = Supervisor(options, lines).run
        else:
            job = Daemon(options, lines).run
        return trio.run(job)
    except StartError as error:
        log.write(f"lilo-sidecar: error: {error}")
        return USAGE_ERROR
    finally:
        lines.close(_CLOSE_TIMEOUT)
        log.close(_CLOSE_TIMEOUT)


def _refuse(reason: str) -> int:
    print(f"lilo-sidecar: error: {reason}", file=sys.stderr)  # noqa: T201 - a command may
    return USAGE_ERROR
