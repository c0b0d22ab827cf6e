"""Whatever a loop passes, the call returns, and the statistics say what became of it."""

from __future__ import annotations

from typing import Any

import pytest

import lilo_timing
from lilo_timing._shown import shown


class SilentError(Exception):
    """Does not even say what it is."""

    def __repr__(self) -> str:
        raise RuntimeError


class Evil:
    """Raises such an error at every use."""

    def __index__(self) -> int:
        raise SilentError

    @property
    def log(self) -> Any:
        raise SilentError


def test_shown_never_raises() -> None:
    """A value without a repr is shown by its type."""
    assert shown(SilentError()) == "a SilentError"
    assert shown(10**5000) == "a int"
    assert shown("x" * 200, 10) == "'" + "x" * 9


@pytest.mark.parametrize(
    "arguments",
    [
        {"step": Evil()},
        {"run": Evil()},
        {"step": 10**5000},
        {"step": 2**53 + 1},
        {"base_url": "http://127.0.0.1:1?model=a"},
        {"base_url": "http://127.0.0.1:1/#a"},
    ],
)
def test_evil_arguments_are_counted_before_anything_is_fetched(arguments: dict[str, Any]) -> None:
    """They make no report and end no interval."""
    before = lilo_timing.reporting_statistics().invalid
    given = {"base_url": "http://127.0.0.1:1", **arguments}
    assert lilo_timing.log_critical_path("m", **given) is None
    assert lilo_timing.reporting_statistics().invalid == before + 1
