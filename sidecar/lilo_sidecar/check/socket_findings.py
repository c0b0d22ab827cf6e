"""What is wrong at the socket: what a trainer of this user runs into."""

from __future__ import annotations

from collections.abc import Iterator

from ..intake.listening import MAX_SOCKET_PATH
from ..socket_probe import SocketProbe, SocketState
from .facts import Facts
from .finding import Finding

UNMEASURED = "A trainer of this user is not measured; its events wait, and then are dropped."


def socket_findings(facts: Facts) -> Iterator[Finding]:
    """Nothing, where no socket was looked at."""
    probe = facts.socket
    if probe is None:
        return
    if probe.state is SocketState.LISTENING:
        yield from _admission(probe)
        return
    code, what, do = _not_listening(facts, probe)
    yield Finding(code, what, UNMEASURED, do)


def _not_listening(facts: Facts, probe: SocketProbe) -> tuple[str, str, str]:
    """Code, what is wrong, what to do."""
    path = probe.path
    match probe.state:
        case SocketState.TOO_LONG:
            return (
                "socket_too_long",
                f"The socket path {path} has more than the {MAX_SOCKET_PATH} bytes that the system "
                "allows.",
                "Choose a shorter one for both sidecar and trainer, with LILO_TIMING_SOCKET.",
            )
        case SocketState.NOT_A_SOCKET:
            return (
                "not_a_socket",
                f"{path} is a file, and no socket.",
                "Remove it and start the sidecar, or choose another path with LILO_TIMING_SOCKET.",
            )
        case SocketState.STALE:
            return (
                "stale_socket",
                f"Nobody listens at {path}: the sidecar that made this socket was killed.",
                "Start it again; it takes the socket's place and goes on where it was: "
                f"lilo-sidecar serve --socket {path}",
            )
        case SocketState.FORBIDDEN:
            return (
                "no_permission",
                f"This user (uid {facts.uid}) may not connect to {path}; what keeps it out is "
                f"{probe.blocked_at}.",
                "Run the sidecar as the trainer's user; or have the socket in a directory that "
                f"this user may enter, and start the sidecar with --allow-uid {facts.uid}.",
            )
        case SocketState.CROWDED:
            return (
                "socket_crowded",
                f"Connections to {path} wait, and nobody takes them.",
                "The process that listens there hangs or is stopped; its log may say why. Start it "
                "again.",
            )
        case _:
            return "no_socket", _missing(probe), _start(facts, probe)


def _missing(probe: SocketProbe) -> str:
    no_directory = probe.state is SocketState.NO_DIRECTORY
    found = "its directory is not there" if no_directory else "nothing is there"
    return f"No sidecar has its socket at {probe.path}: {found}."


def _start(facts: Facts, probe: SocketProbe) -> str:
    start = (
        f"Start one: lilo-sidecar serve --socket {probe.path}; where one runs, name its socket "
        "with --socket or LILO_TIMING_SOCKET."
    )
    if not facts.runs:
        return start
    others = ", ".join(map(str, facts.runs))
    return f"If it is one of these, which run, add --socket with its path: {others}. {start}"


def _admission(probe: SocketProbe) -> Iterator[Finding]:
    """Whether trainer and listener would take each other."""
    if probe.distrust is not None:
        yield Finding(
            "untrusted_listener",
            f"A trainer of this user does not trust who listens at the socket: {probe.distrust}.",
            UNMEASURED,
            "Run the sidecar as the trainer's user, or move the socket as said.",
        )
    match probe.refusal:
        case None:
            pass
        case ("peer", reason):
            yield Finding(
                "user_refused",
                f"The sidecar refuses this user: {reason}.",
                UNMEASURED,
                "Do as it says, or run this command as the trainer's user.",
            )
        case (code, reason):
            yield Finding(
                "connection_refused",
                f"The sidecar refuses connections ({code}): {reason}.",
                UNMEASURED,
                "Stop trainers that are not needed; the sidecar's log has who connects.",
            )
