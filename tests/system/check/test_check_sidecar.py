"""`lilo-sidecar check` of real deployments, with one thing wrong with the sidecar itself: it says
which, why it matters and what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.checking import altered, check, sidecar_at
from support.producer import Producer
from support.sidecar import SidecarProcess


def test_journal_that_is_off(tmp_path: Path) -> None:
    """With the reason."""
    (tmp_path / "file").touch()
    path = tmp_path / "timing.sock"
    with sidecar_at(path, "--state-dir", tmp_path / "file" / "state"):
        said = check("--socket", path).says("journal_off")
    assert "Not a directory" in said
    assert "--state-dir" in said


def test_connections_that_break_the_protocol(sidecar: SidecarProcess, trainer: Producer) -> None:
    """They are counted, and told."""
    with Producer(sidecar.socket) as broken:
        broken.socket.sendall(b"\0\0\0\1\xc1")
        broken.refused()
    done = check("--socket", sidecar.socket)
    assert (done.status, done.codes) == (1, ["protocol_errors"])
    assert "1 connection broke the protocol" in done.says("protocol_errors")


def _newer(answers: dict[str, dict[str, Any]]) -> None:
    answers["/healthz"]["version"] = "9.9.9"


def _faulty(answers: dict[str, dict[str, Any]]) -> None:
    health = answers["/healthz"]
    health["faults"], health["ingest"]["faults"], health["http"]["faults"] = 1, 2, 3


def _full(answers: dict[str, dict[str, Any]]) -> None:
    answers["/healthz"]["http"]["refused"] = 4


@pytest.mark.parametrize(
    ("alter", "code", "says"),
    [
        (_newer, "other_version", "version 9.9.9"),
        (_faulty, "faults", "6 faults of its own"),
        (_full, "readers_refused", "4 connections of readers"),
    ],
)
def test_what_no_test_brings_a_sidecar_to(
    sidecar: SidecarProcess,
    trainer: Producer,
    alter: Callable[[dict[str, dict[str, Any]]], None],
    code: str,
    says: str,
) -> None:
    """Told from a real sidecar's answers with the one thing altered."""
    answers = {"/healthz": sidecar.health(), "/api/v1/timing": sidecar.timing()}
    with altered(answers, alter) as server:
        done = check("--url", server.url)
    assert (done.status, done.codes) == (1, [code])
    assert says in done.says(code)
