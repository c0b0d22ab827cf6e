"""Every test finds a client that has reported nothing yet, in no W&B run, with no settings."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import lilo_timing
from lilo_timing import _process, _statistics
from support.timing_server import TIMEOUT, TimingServer, timing_server
from support.wandb_runs import Runs


@pytest.fixture(autouse=True)
def _fresh_client(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("TINKER_BASE_URL", raising=False)
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    monkeypatch.setattr(_process, "_process", _process.Process())
    # The one object that all modules share, so its inside is set back.
    monkeypatch.setattr(_statistics.counters, "_counts", lilo_timing.ReportingStatistics())
    monkeypatch.setattr(_statistics.counters, "_said", set())
    yield
    assert lilo_timing.flush_critical_path(TIMEOUT)


@pytest.fixture
def server() -> Iterator[TimingServer]:
    """Answers everybody with the same timing until told otherwise."""
    with timing_server() as server:
        yield server


@pytest.fixture(scope="session")
def _wandb_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """One wandb for all tests: it takes seconds to come and go."""
    runs = Runs(tmp_path_factory.mktemp("wandb"))
    yield runs
    runs.wandb.teardown()


@pytest.fixture
def runs(_wandb_runs: Runs) -> Iterator[Runs]:
    """Makes real W&B runs; those that a test leaves live are finished after it."""
    yield _wandb_runs
    _wandb_runs.wandb.sdk.wandb_setup.singleton().finish_all_active_runs()


@pytest.fixture(params=["asyncio", "trio"])
def backend(request: pytest.FixtureRequest) -> str:
    """Every test that takes it runs on both."""
    return str(request.param)
