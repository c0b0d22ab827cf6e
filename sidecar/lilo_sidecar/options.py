"""The command line, and what can be told to be wrong with it before anything starts."""

from __future__ import annotations

import argparse
import importlib.metadata
import math
import os
import pwd
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from lilo_engine_hook import default_socket_path

from .access import check_exposure, read_token
from .addresses import host_and_port
from .errors import StartError
from .intake.activation import PassedSocket, passed_socket
from .intake.listening import check_socket_path
from .options_asking import ASKING_VERBS, AskOptions, add_asking_verbs, asking_options
from .options_trace import TraceOptions, add_trace, trace_options
from .reporter import REPORT_INTERVAL
from .socket_probe import probe_unnamed

MIN_REPORT_INTERVAL: Final = 0.1
"""Seconds: a line is some kilobytes, and nobody reads ten a second."""
_MAX_UID: Final = 2**32 - 2
"""The highest number of a user; the one after it means nobody in particular."""
_DESCRIPTION: Final = "Where a multi-tenant LoRA trainer's time goes, per model and phase."
_RUN_USAGE: Final = "lilo-sidecar run [options] -- CMD [ARGUMENT ...]"


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """What `serve` was asked to do."""

    socket: Path
    """Absolute path of the Unix socket that producers connect to."""
    family: int
    """Of the HTTP address: ``AF_INET`` or ``AF_INET6``."""
    address: tuple[str, int]
    """Numeric IP address and port; port 0 is any that is free."""
    report_interval: float
    """Seconds without a fetch of the aggregate until a line is printed."""
    token_file: Path | None
    """Where the HTTP token is; None serves without one, on loopback only."""
    stop_at_eof: bool
    """Whether the end of stdin stops the daemon: whoever started it is gone."""
    state_dir: Path
    """Absolute path of the directory that the journal is kept in."""
    allowed_uids: frozenset[int] = frozenset()
    """Users whose processes may report, beside the sidecar's own and root."""
    passed: PassedSocket | None = None
    """The listening socket that this process was started with, to be used instead of a new one."""

    def token(self) -> str | None:
        """The HTTP token. Raises `StartError`."""
        return None if self.token_file is None else read_token(self.token_file)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What `run` was asked to do."""

    serve: ServeOptions
    command: tuple[str, ...]
    keep_state: bool
    """Whether the state directory stays when all is over; not when nobody named it or the
    socket, and so nobody will find it again."""


def parse(
    arguments: Sequence[str],
) -> ServeOptions | RunOptions | AskOptions | TraceOptions:
    """Read the command line. Exits with status 2 and a line on stderr where it is no valid one;
    raises `StartError` for options that are valid by themselves and cannot work."""
    # What follows the first -- is the command's own and never looked at here.
    before, dashes, command = list(arguments), False, list[str]()
    if "--" in before:
        position = before.index("--")
        before, dashes, command = before[:position], True, before[position + 1 :]
    parser = _parser()
    given = parser.parse_args(before)
    if given.verb != "run" and dashes:
        parser.error(f"{given.verb} takes no command; the form with one is: {_RUN_USAGE}")
    if given.verb == "run" and not command:
        parser.error(f"run needs the command that it is to run: {_RUN_USAGE}")
    if given.verb in ASKING_VERBS:
        return asking_options(given)
    passed = passed_socket(os.environ) if given.verb == "serve" else None
    if passed is not None:
        path = _agreed(passed, given.socket)
    else:
        path = (given.socket or _named_socket() or _default_socket(given.verb)).absolute()
        if given.verb == "trace" and not (given.socket or _named_socket()):
            path = probe_unnamed(path)[0].path
    state_dir = (given.state_dir or path.with_suffix(".state")).absolute()
    if given.verb == "trace":
        return trace_options(given, state_dir)
    family, address = _resolve(*given.http)
    options = ServeOptions(
        socket=path,
        family=family,
        address=address,
        report_interval=given.report_interval,
        token_file=given.token_file,
        stop_at_eof=given.verb == "serve" and given.stop_at_eof,
        state_dir=state_dir,
        allowed_uids=frozenset(given.allow_uid),
        passed=passed,
    )
    check_socket_path(options.socket)
    if options.state_dir == options.socket:
        raise StartError(f"{path} cannot be the socket and the state directory; add --state-dir")
    check_exposure(address[0], token=options.token_file is not None)
    if given.verb == "serve":
        return options
    named = given.socket or _named_socket() or given.state_dir
    return RunOptions(options, tuple(command), keep_state=named is not None)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, like every other reason not to start."""
        self.exit(2, f"lilo-sidecar: error: {message}; see {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser("lilo-sidecar", description=_DESCRIPTION, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=_version())
    verbs = parser.add_subparsers(
        dest="verb", metavar="serve | run | check | top | trace", required=True
    )
    serve = verbs.add_parser("serve", help="run the sidecar", allow_abbrev=False)
    run = verbs.add_parser(
        "run", help="run a command beside a sidecar", usage=_RUN_USAGE, allow_abbrev=False
    )
    for verb in (serve, run):
        verb.add_argument(
            "--socket",
            type=Path,
            metavar="PATH",
            help="Unix socket that the trainer reports to (default: "
            + ("" if verb is run else "the one that systemd passes; else ")
            + "LILO_TIMING_SOCKET; else "
            + ("one of its own)" if verb is run else f"{default_socket_path()})"),
        )
        verb.add_argument(
            "--http",
            type=host_and_port,
            default="127.0.0.1:0",
            metavar="HOST:PORT",
            help="where HTTP is served; port 0 is any that is free (default: %(default)s)",
        )
        verb.add_argument(
            "--report-interval",
            type=_interval,
            default=REPORT_INTERVAL,
            metavar="SECONDS",
            help="print a lilo_critical_path line when nobody fetched the aggregate for so long "
            "(default: %(default)s)",
        )
        verb.add_argument(
            "--token-file",
            type=Path,
            metavar="FILE",
            help="require the token in this file over HTTP; a must where --http is not loopback",
        )
        verb.add_argument(
            "--state-dir",
            type=Path,
            metavar="DIR",
            help="where the journal is kept, so that a restart of the sidecar loses nothing "
            "(default: beside the socket, with the suffix .state)",
        )
        verb.add_argument(
            "--allow-uid",
            type=_uid,
            action="append",
            default=[],
            metavar="UID",
            help="a further user, by number or name, whose processes may report; may be repeated "
            "(default: only the sidecar's own user and root)",
        )
    serve.add_argument("--stop-at-eof", action="store_true", help="stop when stdin ends")
    add_asking_verbs(verbs)
    add_trace(verbs)
    return parser


def _version() -> str:
    return f"lilo-sidecar {importlib.metadata.version('lilo-timing')}"


def _named_socket() -> Path | None:
    """The socket that the environment names."""
    named = os.environ.get("LILO_TIMING_SOCKET")
    return Path(named) if named else None


def _default_socket(verb: str) -> Path:
    """Where a hook that was told nothing looks; for `run`, which tells its command where, a place
    that no other run has."""
    path = Path(default_socket_path())
    return path.with_name(f"run-{os.getpid()}.sock") if verb == "run" else path


def _agreed(passed: PassedSocket, named: Path | None) -> Path:
    """Where the passed socket is. Raises `StartError` if the command line has another place."""
    if named is not None and named.absolute() != passed.path:
        raise StartError(
            f"systemd listens at {passed.path}, and --socket says {named}; leave --socket out"
        )
    return passed.path


def _uid(text: str) -> int:
    if text.isascii() and text.isdigit():
        if int(text) > _MAX_UID:
            raise argparse.ArgumentTypeError(f"{text} is no user's number, 0 to {_MAX_UID}")
        return int(text)
    try:
        return pwd.getpwnam(text).pw_uid
    except KeyError:
        raise argparse.ArgumentTypeError(
            f"there is no user {text!r} here; give a user's number, or a name that is known"
        ) from None


def _interval(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not MIN_REPORT_INTERVAL <= value < math.inf:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no number of seconds from {MIN_REPORT_INTERVAL} up"
        )
    return value


def _resolve(host: str, port: int) -> tuple[int, tuple[str, int]]:
    """Numeric address of a host, IPv4 where it has both."""
    try:
        found = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV
        )
    except OSError as error:
        raise StartError(f"--http: no address for {host!r}: {error.strerror}") from None
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return family, (str(address[0]), port)
