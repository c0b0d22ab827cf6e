"""What one logger was told: threads that other tests left behind, of libraries of all sorts, may
log at any moment, into whatever test runs then."""

from __future__ import annotations

import logging

import pytest

HOOK = "lilo_engine_hook"
CLIENT = "lilo_timing"


def logged_by(caplog: pytest.LogCaptureFixture, logger: str) -> list[logging.LogRecord]:
    """Its records of this test so far, at every level that is captured."""
    return [record for record in caplog.records if record.name == logger]
