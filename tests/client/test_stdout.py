"""Reports on a stdout that does not take them at once."""

from __future__ import annotations

import errno
import io
import sys
from typing import Any

import pytest

from lilo_timing import log_critical_path, reporting_statistics
from support.timing_readers import ReaderModel
from support.timing_server import TimingServer


class _Disk(io.RawIOBase):
    """A file on a disk that may be full."""

    def __init__(self) -> None:
        self.full = False
        self.content = b""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, "no space left on device")
        self.content += bytes(data)
        return len(data)


def test_a_line_that_stdout_holds_back_is_not_printed_again(
    server: TimingServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A disk that is full for a moment: the line is in Python's buffer, and comes out of it when
    there is room. So the interval was delivered, with one warning."""
    server.answering = ReaderModel().answer
    disk = _Disk()
    stdout = io.TextIOWrapper(io.BufferedWriter(disk), write_through=True)
    with monkeypatch.context() as printing:
        printing.setattr(sys, "stdout", stdout)
        for full in (False, True, True, False):
            disk.full = full
            log_critical_path("m", base_url=server.url, background=False)
    assert len(disk.content.splitlines()) == 4
    acks = [request.query.get("ack") for request in server.requests]
    assert acks == [None, "a0.1", "a0.2", "a0.3"]
    assert caplog.text.count("stdout could not be flushed") == 1
    assert reporting_statistics().printed == 4
