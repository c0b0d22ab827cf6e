"""What is wrong with the sidecar itself."""

from __future__ import annotations

from collections.abc import Iterator

from ..shown import shown
from ..words import count
from .facts import Facts, Health
from .finding import Finding


def sidecar_findings(facts: Facts) -> Iterator[Finding]:
    """Since it started; nothing, where it could not be asked."""
    health = facts.health
    if health is None:
        return
    if health.version != facts.version:
        yield Finding(
            "other_version",
            f"The sidecar has version {shown(health.version)}, and this command {facts.version}.",
            "What one of them says may be unknown to the other.",
            "After an update, start the sidecar again; or run the command of its environment.",
        )
    if health.journal_reason is not None:
        yield Finding(
            "journal_off",
            f"The journal is off: {shown(health.journal_reason)}.",
            "If the sidecar ends now, what it has counted is lost.",
            "Give it a directory of its own on a disk with room, which it may write to: "
            "--state-dir DIR. Once it can write there, it does so within a minute by itself.",
        )
    if health.faults:
        yield Finding(
            "faults",
            f"The sidecar had {count(health.faults, 'fault', 'faults')} of its own.",
            "Each cost an event or a connection.",
            "Its log says where (ERROR); please report it, with that line.",
        )
    yield from _turned_away(health)


def _turned_away(health: Health) -> Iterator[Finding]:
    if health.refused_peers:
        yield Finding(
            "peers_refused",
            f"{count(health.refused_peers, 'connection', 'connections')} of users that may not "
            "report were refused.",
            "If it was a trainer, it is not measured.",
            "The sidecar's log has the user; start the sidecar with --allow-uid for it.",
        )
    if health.refused_connections:
        yield Finding(
            "producers_refused",
            f"{count(health.refused_connections, 'connection', 'connections')} of producers found "
            "no room: 32 may be connected.",
            "Those processes are not measured.",
            "Let only rank 0 of a job report (RANK in the environment), and use more sidecars for "
            "more trainers.",
        )
    if health.protocol_errors:
        yield Finding(
            "protocol_errors",
            f"{count(health.protocol_errors, 'connection', 'connections')} broke the protocol.",
            "What they sent last is not in the figures.",
            "Install the same release of lilo-timing in the trainer and beside it; the sidecar's "
            "log has the process.",
        )
    if health.refused_readers:
        yield Finding(
            "readers_refused",
            f"{count(health.refused_readers, 'connection', 'connections')} of readers found no "
            "room: 128 may be connected.",
            "Some readers were not answered.",
            "Ask less often, or through one control plane.",
        )
