"""The `lilo-sidecar` command.

What each verb needs is imported when it is needed: a supervisor has no use for an HTTP server,
and where the extra is not installed that is said in a sentence.
"""

from __future__ import annotations

import importlib.util
import io
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from .errors import StartError
from .output import LineWriter, keep_standard_descriptors, log_to

if TYPE_CHECKING:
    from .options import RunOptions, ServeOptions
    from .options_asking import AskOptions
    from .options_trace import TraceOptions

USAGE_ERROR: Final = 2
"""Exit status when the sidecar cannot start as it was asked to."""
_CLOSE_TIMEOUT: Final = 0.5
"""Seconds at the end for each of stdout and stderr to take what is left."""
_PATIENCE: Final = 10
"""By how much `trace` gives way: it works for seconds on a machine on which somebody trains."""
_EXTRA: Final = ("trio", "hypercorn", "orjson", "prometheus_client", "starlette")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status. Never raises for what is the operator's to mend: that
    is one line on stderr."""
    missing = [name for name in _EXTRA if importlib.util.find_spec(name) is None]
    if missing:
        return _refuse(
            f"missing here: {', '.join(missing)}; "
            "install the sidecar with: pip install 'lilo-timing[sidecar]'"
        )
    keep_standard_descriptors()
    from .options import parse
    from .options_asking import AskOptions
    from .options_trace import TraceOptions

    try:
        options = parse(sys.argv[1:] if arguments is None else arguments)
        if isinstance(options, AskOptions):
            return _ask(options)
        if isinstance(options, TraceOptions):
            return _trace(options)
    except StartError as error:
        return _refuse(str(error))
    import trio

    job = _job(options)

    lines, log = LineWriter(1), LineWriter(2)
    log_to(log)
    try:
        return trio.run(job, lines)
    except StartError as error:
        log.write(f"lilo-sidecar: error: {error}")
        return USAGE_ERROR
    finally:
        lines.close(_CLOSE_TIMEOUT)
        log.close(_CLOSE_TIMEOUT)


def _job(options: ServeOptions | RunOptions) -> Callable[[LineWriter], Awaitable[int]]:
    from .options import RunOptions

    if isinstance(options, RunOptions):
        from .run import Supervisor

        return Supervisor(options).run
    from .serve import Daemon

    return Daemon(options).run


def _ask(options: AskOptions) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A path or a model's id may have any character, and the terminal not.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        if options.verb == "check":
            from . import check

            status = check.run(options)
        else:
            from . import top

            status = top.run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read it has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nothing more is said of it at the exit
        return USAGE_ERROR
    return status


def _trace(options: TraceOptions) -> int:
    from .trace import export

    os.nice(_PATIENCE)
    return export(options)


def _refuse(reason: str) -> int:
    print(f"lilo-sidecar: error: {reason}", file=sys.stderr)  # noqa: T201 - a command may
    return USAGE_ERROR
