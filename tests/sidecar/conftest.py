"""What the tests of the sidecar share."""

from __future__ import annotations

import logging

import pytest


@pytest.fixture
def everything_logged(caplog: pytest.LogCaptureFixture) -> None:
    """From INFO up, as the daemon does."""
    caplog.set_level(logging.INFO)
