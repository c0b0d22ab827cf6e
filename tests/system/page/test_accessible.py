"""The page for whoever looks at it: in light and dark, on a phone, by keyboard."""

from __future__ import annotations

import time

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from support.feed import begin, finish, span
from support.producer import Producer
from support.shown_page import (
    MODELS,
    Open,
    live,
)
from support.sidecar import SidecarProcess

DESK = {"width": 1280, "height": 900}
PHONE = {"width": 360, "height": 740}


@pytest.mark.parametrize(("scheme", "size"), [("light", DESK), ("dark", PHONE)])
def test_it_is_accessible(
    opened: Open, busy: tuple[SidecarProcess, Producer], scheme: str, size: dict[str, int]
) -> None:
    """axe finds nothing, contrast included, light and large, dark and small, with everything open;
    and nothing is wider than the screen."""
    with opened(busy[0].url, color_scheme=scheme, viewport=size) as seen:
        live(seen.page)
        seen.page.locator("#spans summary").click()
        for name in ("heavy", "<img"):
            seen.page.get_by_role("button", name=name).click()
        seen.page.locator("tr.below:visible details summary").first.click()
        found = Axe().run(seen.page)
        assert found.violations_count == 0, found.generate_report()
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= size["width"]
        ground = seen.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        assert ground == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 23, 28)")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_parts_are_told_apart_from_the_ground(
    opened: Open, busy: tuple[SidecarProcess, Producer], scheme: str
) -> None:
    """What has the colour alone to be seen by has a contrast of 3 to what it lies on, as WCAG
    1.4.11 asks; client time is what is left over, and is written as a figure, too."""
    with opened(busy[0].url, color_scheme=scheme) as seen:
        style = "getComputedStyle(document.documentElement).getPropertyValue"
        ground = _luminance(seen.page.evaluate(f"{style}('--ground')"))
        for part in ("mine_s", "neighbors_s", "overhead_s", "persist_s", "operation-0"):
            colour = _luminance(seen.page.evaluate(f"{style}('--{part}')"))
            dark, light = sorted((ground, colour))
            assert (light + 0.05) / (dark + 0.05) >= 3.0, part


def _luminance(colour: str) -> float:
    """Of #rgb or #rrggbb, as WCAG defines it."""
    digits = colour.strip().removeprefix("#")
    digits = "".join(2 * digit for digit in digits) if len(digits) == 3 else digits
    channels = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_everything_is_reached_by_keyboard(
    opened: Open, busy: tuple[SidecarProcess, Producer]
) -> None:
    """In the order of the page, with a focus that shows; a model is opened by it, and keeps the
    focus while figures come in and rows change places."""
    sidecar, producer = busy
    with opened(sidecar.url) as seen:
        page = seen.page
        live(page)
        reached = []
        for _ in range(8 + len(MODELS)):
            page.keyboard.press("Tab")
            reached.append(
                page.evaluate(
                    "document.activeElement.id || document.activeElement.innerText || "
                    "document.activeElement.name || document.activeElement.tagName"
                )
            )
            outline = page.evaluate(
                "getComputedStyle(document.activeElement.matches('input[type=radio]') ? "
                "document.activeElement.nextElementSibling : document.activeElement).outlineStyle"
            )
            assert outline == "solid", reached
        assert reached[0].startswith("Skip")
        assert reached[1:5] == ["range", "The spans as a table", "find", "order"]
        page.get_by_role("button", name="light").focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name="light")).to_have_attribute("aria-expanded", "true")
        page.locator("#order").select_option("latest")
        page.get_by_role("button", name="light").focus()
        now = time.time()
        producer.send(begin("light", 9100, now), span(["light"], now, now, ids=["light:9100"]),
                      finish("light", 9100, now))  # fmt: skip
        expect(page.locator("tr.model .id").first).to_have_text("light")
        assert page.evaluate("document.activeElement.innerText") == "light"
        page.keyboard.press("Enter")
        expect(page.locator("tr.below:visible")).to_have_count(0)
