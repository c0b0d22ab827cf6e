"""A browser, a sidecar with something to show, and pages that complain of nothing."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from lilo_engine_hook import wire
from support.browser import TIMEOUT, Visit, chromium, visit
from support.producer import Producer
from support.shown_page import HOSTILE, MODELS, Open
from support.sidecar import SidecarProcess
from support.watched import Past, start_watched

expect.set_options(timeout=TIMEOUT)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for all of these tests; each page has a context of its own."""
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def busy(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[SidecarProcess, Producer]]:
    """A sidecar that three ordinary models were busy under, and some with odd names."""
    with (
        start_watched(tmp_path_factory.mktemp("busy")) as sidecar,
        Producer(sidecar.socket) as producer,
    ):
        producer.greet()
        past = Past(producer, MODELS, ago=60.0)
        producer.send(*(wire.Register(time.time() - 9.0, model) for model in HOSTILE))
        past.tell(sidecar)
        yield sidecar, producer


@pytest.fixture
def opened(browser: Browser) -> Open:
    """Opens a page. When it is closed: it complained of nothing, but for what may be, and asked
    nobody but the sidecar."""

    @contextmanager
    def open_page(url: str, may: re.Pattern[str] | None = None, **context: Any) -> Iterator[Visit]:
        with visit(browser, url, **context) as seen:
            yield seen
            unexpected = [c for c in seen.complaints if may is None or not may.search(c)]
            assert unexpected == []
            assert seen.requests
            assert [asked for asked in seen.requests if not asked.startswith(f"{url}/")] == []

    return open_page
