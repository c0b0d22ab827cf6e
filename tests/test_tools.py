"""What becomes of a test whose program is not installed."""

from __future__ import annotations

import pytest

from support.tools import tool


def test_missing_program_skips_and_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """A newcomer without it runs the rest."""
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"needs no-such-program: apt-get install pack"):
        tool("no-such-program", "package")


def test_missing_program_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    """There it is installed, and a test that is skipped would show nothing."""
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=r"apt-get install package"):
        tool("no-such-program", "package")


def test_program_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of this environment's own, and of the system's."""
    assert tool("ruff", "ruff").endswith("/bin/ruff")
    assert tool("sh", "dash").endswith("/sh")
