"""Lines that never hold up whoever writes them."""

from __future__ import annotations

import os

from lilo_sidecar.output import MAX_LINES, LineWriter


def test_lines_come_out_whole_and_in_order() -> None:
    """Each with its line feed, however long it is."""
    reading, writing = os.pipe()
    lines = LineWriter(writing)
    lines.write("ü" * 10)
    lines.write("x\udcff")
    lines.close(10)
    os.close(writing)
    with os.fdopen(reading, "rb") as output:
        assert output.read().decode() == "ü" * 10 + "\nx\\udcff\n"


def test_unread_lines_are_bounded_and_counted() -> None:
    """A reader that does not read costs lines, not memory and not time."""
    reading, writing = os.pipe()
    lines = LineWriter(writing)
    lines.write("x" * 1_000_000)  # more than a pipe holds: the writing thread is stuck in it
    for _ in range(2 * MAX_LINES):
        lines.write("y")
    assert lines.dropped in (MAX_LINES, MAX_LINES + 1)  # the long one may wait in line, too
    lines.close(0.01)  # gives up
    with os.fdopen(reading, "rb") as output:
        assert len(output.readline()) == 1_000_001
        lines.close(10)
        os.close(writing)
        assert output.read().count(b"y\n") == 2 * MAX_LINES - lines.dropped


def test_lost_reader_costs_the_lines_only() -> None:
    """A closed pipe raises nothing, now or later."""
    reading, writing = os.pipe()
    os.close(reading)
    lines = LineWriter(writing)
    for _ in range(10):
        lines.write("x")
    lines.close(10)
    os.close(writing)
    assert lines.dropped == 0
