"""What `trace` can be asked for."""

from __future__ import annotations

import argparse
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lilo_engine_hook import default_socket_path

_UNITS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smh]?)", re.ASCII)
STDOUT: Final = "-"


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """What `trace` was asked to do."""

    state_dir: Path
    """Absolute path of the directory with the journals."""
    last: float
    """Seconds before the last of what the journals have."""
    output: str
    """Where to write: a path, or ``-`` for stdout."""
    model_id: str | None
    """Whose form of the trace: all other models are neighbors in it. None names all."""


def add_trace(verbs: Any) -> None:
    """Add the verb to a parser's."""
    parser = verbs.add_parser(
        "trace",
        help="write the last minutes as a trace for Perfetto or chrome://tracing",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--last",
        type=_duration,
        default="60s",
        metavar="TIME",
        help="how much, from the last that was reported backwards: 60, 60s, 5m, 1h "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "-o", "--output", required=True, metavar="FILE", help="where to write; - is stdout"
    )
    parser.add_argument(
        "--model",
        metavar="ID",
        help="for the client who has this model: what others do is 'neighbor', and no more of them "
        "is told",
    )
    parser.add_argument(
        "--socket",
        type=Path,
        metavar="PATH",
        help="Unix socket of the sidecar, running or not, whose state is read (default: "
        f"LILO_TIMING_SOCKET; else {default_socket_path()})",
    )
    parser.add_argument(
        "--state-dir",
        type=Path,
        metavar="DIR",
        help="its state directory (default: beside the socket, with the suffix .state)",
    )


def trace_options(given: argparse.Namespace, state_dir: Path) -> TraceOptions:
    """The verb's options as they were parsed; ``state_dir`` is absolute."""
    return TraceOptions(state_dir, given.last, given.output, given.model)


def _duration(text: str) -> float:
    match = _DURATION.fullmatch(text)
    seconds = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if not 0.0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no time such as 60s, 5m or 1h")
    return seconds
