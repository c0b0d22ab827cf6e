"""What the tests of the sidecar share."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from lilo_sidecar.state.directory import StateDirectory
from lilo_sidecar.state.journal import JournalFile


@pytest.fixture
def everything_logged(caplog: pytest.LogCaptureFixture) -> None:
    """From INFO up, as the daemon does."""
    caplog.set_level(logging.INFO)


@pytest.fixture(autouse=True)
def _closed_files(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A sidecar that a test has killed leaves its descriptors to the kernel. Here they are the
    test's, and all of them together would be more than a process may have."""
    opened: list[StateDirectory | JournalFile] = []
    for kind in (StateDirectory, JournalFile):
        _note(monkeypatch, kind, opened)
    yield
    for each in opened:
        each.close()


def _note(monkeypatch: pytest.MonkeyPatch, kind: Any, opened: list[Any]) -> None:
    made = kind.__init__

    def make(self: Any, *arguments: Any, **options: Any) -> None:
        made(self, *arguments, **options)
        opened.append(self)

    monkeypatch.setattr(kind, "__init__", make)
