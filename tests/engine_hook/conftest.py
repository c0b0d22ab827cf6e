"""What the tests of the hook share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lilo_engine_hook import _producer
from support.otlp_receiver import OtlpReceiver, otlp_receiver
from support.sidecar import TIMEOUT


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is no failure: what a loop reported is delivered when it is closed."""
    monkeypatch.setattr(_producer, "FLUSH_TIMEOUT", TIMEOUT)


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[OtlpReceiver]:
    """Where OTLP observers of this test export to."""
    with otlp_receiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")  # milliseconds; 5,000 by default
        # A busy machine is no failure.
        monkeypatch.setattr("lilo_engine_hook.otlp.CLOSE_TIMEOUT", 20.0)
        yield receiver
