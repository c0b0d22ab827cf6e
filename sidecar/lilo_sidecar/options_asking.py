"""The command line of the verbs that ask a running sidecar: `check` and `top`."""

from __future__ import annotations

import argparse
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from lilo_engine_hook import default_socket_path

from .access import read_token
from .addresses import host_and_port

ASKING_VERBS: Final = ("check", "top")
MIN_INTERVAL: Final = 0.2
"""Seconds between two looks: people do not read faster, and an answer costs the sidecar some
milliseconds."""
MAX_INTERVAL: Final = 3600.0
INTERVAL: Final = 2.0


@dataclass(frozen=True, slots=True)
class AskOptions:
    """Which sidecar `check` or `top` was asked to ask, and how to show it."""

    verb: str
    socket: Path | None
    """Absolute path of the socket to look at; None where an address was given and no socket."""
    socket_named: bool
    """Whether somebody named it: an option, or the environment."""
    url: str | None
    """None is that of the file beside the socket."""
    token_file: Path | None
    as_json: bool
    once: bool = True
    interval: float = INTERVAL
    """Seconds between two looks."""

    def token(self) -> str | None:
        """The HTTP token. Raises `StartError`."""
        return None if self.token_file is None else read_token(self.token_file)


def asking_options(given: argparse.Namespace) -> AskOptions:
    """The options of such a verb, as they were parsed."""
    named: Path | None = given.socket
    if named is None and os.environ.get("LILO_TIMING_SOCKET"):
        named = Path(os.environ["LILO_TIMING_SOCKET"])
    socket = named
    if socket is None and given.url is None:
        socket = Path(default_socket_path())
    top = given.verb == "top"
    return AskOptions(
        verb=given.verb,
        socket=None if socket is None else socket.absolute(),
        socket_named=named is not None,
        url=given.url,
        token_file=given.token_file,
        as_json=given.json,
        once=not top or given.once or given.json,
        interval=given.interval if top else INTERVAL,
    )


def add_asking_verbs(verbs: argparse._SubParsersAction[Any]) -> None:
    """Add the verbs to the command line."""
    check = verbs.add_parser(
        "check",
        help="say what is wrong with a deployment, and what to do",
        description="Says what is wrong with a deployment, one line for each thing, and what to "
        "do. Run it as the user, and with the environment, that the trainer has. Exit status: 0 "
        "all is well, 1 something is wrong, 2 the sidecar could not be asked.",
        allow_abbrev=False,
    )
    top = verbs.add_parser(
        "top",
        help="show where the time goes, live, at a terminal",
        description="Shows where the time goes, live; q ends it.",
        allow_abbrev=False,
    )
    for verb in (check, top):
        where = verb.add_mutually_exclusive_group()
        where.add_argument(
            "--http",
            dest="url",
            type=_http,
            metavar="HOST:PORT",
            help="where it serves HTTP (default: as the file beside its socket says)",
        )
        where.add_argument(
            "--url", dest="url", type=_url, metavar="URL", help="the same, as http://HOST:PORT"
        )
        verb.add_argument(
            "--socket",
            type=Path,
            metavar="PATH",
            help="Unix socket that the trainer reports to (default: LILO_TIMING_SOCKET; else "
            "where `serve` and the hook have it)",
        )
        verb.add_argument(
            "--token-file", type=Path, metavar="FILE", help="the sidecar's HTTP token is in it"
        )
    check.add_argument("--json", action="store_true", help="one JSON document, for scripts")
    top.add_argument("--once", action="store_true", help="show it once and end")
    top.add_argument(
        "--json", action="store_true", help="the figures as one JSON document; implies --once"
    )
    top.add_argument(
        "--interval",
        type=_interval,
        default=INTERVAL,
        metavar="SECONDS",
        help="between two looks (default: %(default)s)",
    )


def _http(text: str) -> str:
    host, port = host_and_port(text)
    if port == 0:
        raise argparse.ArgumentTypeError(
            "port 0 is for the sidecar to choose one; its ready line, and the file beside its "
            "socket, say which"
        )
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _url(text: str) -> str:
    # No message repeats it: there may be a password in it.
    try:
        parts = urlsplit(text)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known or not text.isascii() or not text.isprintable():
        raise argparse.ArgumentTypeError("that is no URL such as http://127.0.0.1:9411")
    if parts.username is not None or parts.query or parts.fragment:
        raise argparse.ArgumentTypeError(
            "the URL is only where the sidecar is: no user, query or fragment; "
            "a token comes from --token-file"
        )
    return text.rstrip("/")


def _interval(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not MIN_INTERVAL <= value <= MAX_INTERVAL:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no number of seconds from {MIN_INTERVAL} to {MAX_INTERVAL:.0f}"
        )
    return value
