"""The page at `/` in a browser: what there is to see on it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

from playwright.sync_api import Locator, Page, expect

from lilo_engine_hook import wire
from support.browser import Visit
from support.sidecar import SidecarProcess, wait_until

Open: TypeAlias = Callable[..., AbstractContextManager[Visit]]
MODELS = ("heavy", "light", "tiny")
HOSTILE = ("<img src=x onerror=alert(1)>", "x" * wire.MAX_MODEL_ID, "نموذج", "a\u202eb")


def live(page: Page) -> None:
    expect(page.locator("#status")).to_have_text("live")


def cells(page: Page, model: str) -> list[str]:
    """The figures of a model's row."""
    row = page.locator("tr.model").filter(
        has=page.locator(".id", has_text=re.compile(f"^{model}$"))
    )
    return row.locator("td.number").all_inner_texts()


def intervals_of(sidecar: SidecarProcess, model: str) -> list[Any]:
    """What the sidecar has of a model to draw."""
    known = sidecar.http.get("/api/v1/overview").json()["models"]
    return next(entry["intervals"] for entry in known if entry["model_id"] == model)


def hover(what: Locator, across: float) -> None:
    """Put the pointer on its upper half, so far from the left."""
    box = what.bounding_box()
    assert box is not None
    what.hover(position={"x": box["width"] * across, "y": box["height"] * 0.3})


def ask_now(page: Page) -> None:
    """As when one comes back to the tab: the page asks at once."""
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def painted(page: Page, selector: str, colour: str) -> int:
    """How many pixels of a canvas have exactly the colour of that custom property."""
    script = """([selector, name]) => {
        const canvas = document.querySelector(selector);
        const copy = document.createElement("canvas");
        [copy.width, copy.height] = [canvas.width, canvas.height];
        const ink = copy.getContext("2d", { willReadFrequently: true });
        ink.drawImage(canvas, 0, 0);
        const { data } = ink.getImageData(0, 0, canvas.width, canvas.height);
        const style = getComputedStyle(document.documentElement);
        const hex = style.getPropertyValue(name).trim().slice(1);
        const wanted = [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16));
        let found = 0;
        for (let at = 0; at < data.length; at += 4)
            found += wanted.every((value, channel) => data[at + channel] === value);
        return found;
    }"""
    return int(page.evaluate(script, [selector, colour]))


def drawn(page: Page, selector: str, colour: str, *, more_than: int) -> None:
    """It is on the canvas, or comes to be: what is scrolled to is drawn once it is in sight."""
    wait_until(lambda: painted(page, selector, colour), lambda pixels: pixels > more_than)


def look_of(page: Page, selector: str) -> str:
    """What is on a canvas, as a digest."""
    url = page.evaluate("(s) => document.querySelector(s).toDataURL()", selector)
    return hashlib.sha256(url.encode()).hexdigest()
