"""Gathers the facts: looks at the socket, asks the sidecar. Blocks for some seconds at most."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
from dataclasses import replace
from pathlib import Path
from typing import Final

from ..asking import Asker, AskError
from ..options_asking import AskOptions
from ..socket_probe import SocketProbe, SocketState, probe, probe_unnamed
from ..whereabouts import announced_url
from .facts import Facts, Figures, Health

READER: Final = "lilo-sidecar-check"
"""Whose interval is asked for. It is never ended, so it goes back to the trainer's start."""


def gather(options: AskOptions) -> Facts:
    """Look and ask. Raises `StartError` for a token that cannot be read."""
    token = options.token()
    facts = located(options)
    return facts if facts.url is None else _asked(facts, facts.url, token)


def located(options: AskOptions) -> Facts:
    """Where the sidecar is, before it is asked anything."""
    found: SocketProbe | None = None
    runs: tuple[Path, ...] = ()
    if options.socket is not None:
        if options.socket_named:
            found = probe(options.socket)
        else:
            found, runs = probe_unnamed(options.socket)
    announced = None if found is None else _announced(found)
    return Facts(
        version=importlib.metadata.version("lilo-timing"),
        uid=os.geteuid(),
        socket=found,
        url=options.url or announced,
        announced=announced,
        runs=runs,
        token_file=options.token_file,
    )


def _announced(found: SocketProbe) -> str | None:
    """Only while somebody listens at the socket: the port of one that is gone may be anybody's."""
    if found.state is SocketState.LISTENING:
        with contextlib.suppress(OSError):
            return announced_url(found.path, found.trusted_uids, found.listener_pid)
    return None


def _asked(facts: Facts, url: str, token: str | None) -> Facts:
    health = figures = None
    try:
        with Asker(url, token) as asker:
            health = Health.of(asker.get("/healthz"))
            figures = Figures.of(asker.get(f"/api/v1/timing?reader={READER}"))
    except AskError as error:
        return replace(facts, health=health, trouble=error)
    return replace(facts, health=health, figures=figures)
