"""Takes the picture of the page for its document: `python -m pictures.page FOLDER`."""

from __future__ import annotations

import sys
import tempfile
import zlib
from pathlib import Path
from typing import Final

from playwright.sync_api import Page

from lilo_engine_hook import wire
from support.browser import chromium, visit
from support.producer import Producer
from support.watched import Past, start_watched

MODELS: Final = ("acme-sql-r16", "billing-dpo", "tiny-reward")
WIDTH: Final = 1080
"""CSS pixels: the table fits, and the letters are still read in a document."""


def main(folder: Path) -> None:
    """Write `page.png`: three minutes of three models, the last of them opened."""
    with (
        tempfile.TemporaryDirectory() as place,
        start_watched(Path(place)) as sidecar,
        Producer(sidecar.socket) as producer,
    ):
        producer.greet()
        past = Past(producer, MODELS, ago=183.0)
        past.tell(sidecar)
        producer.send(wire.State(past.now, MODELS[:2], "executing:forward_backward"))
        options = {"viewport": {"width": WIDTH, "height": 700}, "color_scheme": "light"}
        with chromium() as browser, visit(browser, sidecar.url, **options) as seen:
            (folder / "page.png").write_bytes(_packed(_taken(seen.page)))


def _taken(page: Page) -> bytes:
    page.wait_for_selector("#status[data-state=live]")
    page.get_by_role("button", name=MODELS[-1]).click()
    page.wait_for_selector("tr.below .drawn canvas")
    page.evaluate("scrollTo(0, 0)")
    drawn = page.locator("tr.below .drawn").bounding_box()
    assert drawn is not None
    height = drawn["y"] + drawn["height"] + 12
    return page.screenshot(full_page=True, clip={"x": 0, "y": 0, "width": WIDTH, "height": height})


def _packed(png: bytes) -> bytes:
    """The same picture in fewer bytes: a browser packs it in a hurry."""
    at, before, pixels, after = 8, png[:8], b"", b""
    while at < len(png):
        end = at + int.from_bytes(png[at : at + 4], "big") + 12
        if png[at + 4 : at + 8] == b"IDAT":
            pixels += png[at + 8 : end - 4]
        elif pixels:
            after += png[at:end]
        else:
            before += png[at:end]
        at = end
    packed = b"IDAT" + zlib.compress(zlib.decompress(pixels), 9)
    ends = [(len(packed) - 4).to_bytes(4, "big"), zlib.crc32(packed).to_bytes(4, "big")]
    return before + ends[0] + packed + ends[1] + after


if __name__ == "__main__":
    main(Path(sys.argv[1]))
