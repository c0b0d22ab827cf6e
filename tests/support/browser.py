"""A real headless Chromium, and what a page in it did beside what it shows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from support.tools import tool

_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
TIMEOUT = 20_000
"""Milliseconds until a test that waits gives up."""


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """The system's Chromium, with a profile of its own that nobody had before."""
    path = tool("chromium", "chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(_FLAGS))
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """One page, and what it asked for and complained of."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        """Errors and warnings on the console, exceptions, dialogs."""
        self.requests: list[str] = []
        """Every address that was asked for, but for those that the page's own policy refused."""
        page.set_default_timeout(TIMEOUT)
        page.on("pageerror", lambda error: self.complaints.append(f"exception: {error}"))
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("requestfailed", self._failed)
        page.on("console", self._heard)
        page.on("dialog", self._asked)

    def catch_up(self) -> None:
        """Take in what has happened meanwhile: it is told within calls of the page's only."""
        self.page.evaluate("0")

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text}")

    def _failed(self, request: Any) -> None:
        if request.failure == "csp":
            self.requests.remove(request.url)

    def _asked(self, dialog: Any) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()


@contextlib.contextmanager
def visit(browser: Browser, url: str, **context: Any) -> Iterator[Visit]:
    """Open a page in a context of its own; see `playwright` for the options of one."""
    opened = browser.new_context(**context)
    try:
        seen = Visit(opened.new_page())
        seen.page.goto(url)
        yield seen
    finally:
        opened.close()
