"""What was logged by a test's own doing: threads that other tests left behind, of libraries of all
sorts, may log at any moment, into whatever test runs then."""

from __future__ import annotations

import logging
import threading

import pytest

_OURS = "lilo-timing"
"""The thread that each half of the product has in its process: the hook's, and the client's."""


def logged(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """The records of this test's thread and of the product's so far, of every logger, at every
    level that is captured."""
    threads = (threading.main_thread().name, _OURS)
    return [record for record in caplog.records if record.threadName in threads]
