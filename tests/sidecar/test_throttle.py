"""Log lines that others can cause are bounded, and none goes uncounted."""

from __future__ import annotations

import logging

import pytest

from lilo_sidecar.intake.throttle import LINES, MAX_KINDS, PERIOD, Throttle


class Told:
    """A throttle, its clock, and what it let through."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        self.now = 1000.0
        self.throttle = Throttle(logging.getLogger("test"), lambda: self.now)
        self._caplog = caplog

    def tell(self, kind: str, times: int) -> list[str]:
        """So many lines of a kind; what the log has of them."""
        for number in range(times):
            self.throttle.tell(logging.INFO, kind, "%s %d", kind, number)
        return self.said()

    def said(self) -> list[str]:
        """The lines since the last look."""
        lines = list(self._caplog.messages)
        self._caplog.clear()
        return lines


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Told:
    return Told(caplog)


def test_lines_of_a_kind_are_bounded(told: Told) -> None:
    """Those of another kind are not held up by it."""
    assert told.tell("a", LINES + 5) == [f"a {number}" for number in range(LINES)]
    assert told.tell("b", 1) == ["b 0"]
    assert told.tell("a", 1) == []


def test_what_was_left_out_is_told_and_the_next_period_begins(told: Told) -> None:
    """With the next line of any kind, when the period is over."""
    told.tell("a", LINES + 5)
    told.now += PERIOD
    left_out = f"lines about 'a': {LINES} were written, 5 more were left out"
    assert told.tell("b", 1) == [left_out, "b 0"]
    assert told.tell("a", 1) == ["a 0"]


def test_what_was_left_out_is_told_though_nothing_follows(told: Told) -> None:
    """Where somebody looks now and then, and at the end."""
    told.tell("a", LINES + 1)
    told.throttle.settle()
    assert told.said() == []
    told.now += PERIOD
    told.throttle.settle()
    assert told.said() == [f"lines about 'a': {LINES} were written, 1 more were left out"]
    told.tell("a", LINES + 2)
    told.tell("b", LINES)
    told.throttle.close()
    assert told.said() == [f"lines about 'a': {LINES} were written, 2 more were left out"]


def test_kinds_are_bounded(told: Told) -> None:
    """Those beyond share their lines."""
    for number in range(MAX_KINDS):
        assert len(told.tell(f"kind {number}", 1)) == 1
    assert sum(len(told.tell(f"more {number}", 1)) for number in range(50)) == LINES
