"""``docs/pictures/page.png``: the page, as Chromium shows it."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from typing import Final

from PIL import Image
from playwright.sync_api import Page

from lilo_engine_hook import wire
from support.browser import chromium, visit
from support.feed import begin
from support.producer import Producer
from support.watched import Past, start_watched

MODELS: Final = ("acme-sql-r16", "billing-dpo", "tiny-reward")
WIDTH: Final = 1080
"""CSS pixels: the table fits, and the letters are still read in a document."""


def make(docs: Path) -> None:
    """Take it: three minutes of three models, the last of them opened."""
    with (
        tempfile.TemporaryDirectory() as place,
        start_watched(Path(place)) as sidecar,
        Producer(sidecar.socket) as producer,
    ):
        producer.greet()
        past = Past(producer, MODELS, ago=183.0)
        past.tell(sidecar)
        producer.send(
            *(begin(model, 9000, past.now) for model in MODELS[:2]),
            wire.State(past.now, MODELS[:2], "executing:forward_backward"),
        )
        options = {"viewport": {"width": WIDTH, "height": 700}, "color_scheme": "light"}
        with chromium() as browser, visit(browser, sidecar.url, **options) as seen:
            path = docs / "pictures" / "page.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            # A browser packs a picture in a hurry.
            Image.open(io.BytesIO(_taken(seen.page))).save(path, optimize=True)


def _taken(page: Page) -> bytes:
    page.wait_for_selector("#status[data-state=live]")
    page.get_by_role("button", name=MODELS[-1]).click()
    page.wait_for_selector("tr.below .drawn canvas")
    page.evaluate("scrollTo(0, 0)")
    drawn = page.locator("tr.below .drawn").bounding_box()
    assert drawn is not None
    height = drawn["y"] + drawn["height"] + 12
    return page.screenshot(full_page=True, clip={"x": 0, "y": 0, "width": WIDTH, "height": height})
