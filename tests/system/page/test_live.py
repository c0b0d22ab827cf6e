"""The page while things happen: to the trainer, and to the sidecar."""

from __future__ import annotations

import re
import time
from functools import partial
from operator import ne
from pathlib import Path

from playwright.sync_api import expect

from lilo_engine_hook import wire
from support.feed import begin, finish, span
from support.producer import Producer
from support.shown_page import (
    MODELS,
    Open,
    ask_now,
    intervals_of,
    live,
    look_of,
)
from support.sidecar import SidecarProcess, wait_until
from support.watched import Past, start_watched

ROW_OF_TINY = "tr.model:has(.id[title=tiny])"
UNREACHABLE = re.compile("net::ERR_|Failed to load resource")


def test_empty_sidecar_says_what_to_do_next(opened: Open, tmp_path: Path) -> None:
    """How a trainer comes to report, and what finds out why it does not; and once it is there,
    that it has no model, and then the model, all without reloading."""
    with start_watched(tmp_path) as sidecar, opened(sidecar.url) as seen:
        notices = seen.page.locator("#notices")
        expect(notices).to_contain_text("No trainer has reported yet")
        for said in ("attach(engine)", "lilo-sidecar run", "LILO_TIMING_SOCKET", "check"):
            expect(notices).to_contain_text(said)
        expect(seen.page.locator("#status")).to_have_text("no trainer connected")
        expect(seen.page.locator("#figures")).to_be_hidden()
        with Producer(sidecar.socket) as producer:
            producer.greet()
            ask_now(seen.page)
            expect(notices).to_contain_text("it has no model yet")
            live(seen.page)
            now = time.time()
            producer.send(wire.Register(now - 3, "m"), span(["m"], now - 2, now - 1, "accept"))
            ask_now(seen.page)
            expect(seen.page.locator("tr.model .id")).to_have_text("m")
            expect(notices).to_be_empty()
        expect(notices).to_contain_text("No trainer is connected")
        assert seen.page.evaluate("performance.getEntriesByType('navigation').length") == 1


def test_it_updates_when_events_arrive(opened: Open, busy: tuple[SidecarProcess, Producer]) -> None:
    """Figures, bars, spans and lanes, by asking for what is new only; and what it put together is
    what the sidecar has."""
    sidecar, producer = busy
    with opened(sidecar.url) as seen:
        page = seen.page
        live(page)
        page.locator("#spans summary").click()
        page.get_by_role("button", name="tiny").click()
        below = page.locator("tr.below:visible")
        below.locator("details summary").click()
        before = len(intervals_of(sidecar, "tiny"))
        expect(below.locator("details tbody tr")).to_have_count(before)  # filled after the click
        canvases = [f"{place} canvas" for place in ("#lanes", ".drawn", f"{ROW_OF_TINY} .strip")]
        looked = [look_of(page, canvas) for canvas in canvases]
        now = time.time()
        ids = ["tiny:9001"]
        producer.send(
            begin("tiny", 9001, now - 1.0, "sample"),
            span(["tiny"], now - 0.9, now - 0.5, "sample", ids=ids),
            finish("tiny", 9001, now - 0.5),
        )
        ask_now(page)
        expect(page.locator("#spans tbody tr").first).to_contain_text("sample")
        expect(page.locator("#operations")).to_contain_text("sample")
        expect(below.locator("details tbody tr")).to_have_count(before + 1)
        for canvas, before_that in zip(canvases, looked, strict=True):
            wait_until(partial(look_of, page, canvas), partial(ne, before_that))
        producer.send(
            begin("tiny", 9002, now, "sample"), wire.State(now, ("tiny",), "executing:sample")
        )
        ask_now(page)
        expect(page.locator("#summary")).to_contain_text("gpu: sample")
        producer.send(finish("tiny", 9002, now), wire.State(now, None, "idle"))
        ask_now(page)
        expect(page.locator("#summary")).to_contain_text("idle")
        assert [asked for asked in seen.requests if "after=" in asked]
        assert len([asked for asked in seen.requests if asked.endswith("/overview")]) == 1


def test_it_survives_a_restart_of_the_sidecar(opened: Open, tmp_path: Path) -> None:
    """It says that nobody answers, and since when; goes on by itself, with the sums of before and
    the history of the new sidecar."""
    with start_watched(tmp_path) as sidecar:
        url = sidecar.url
        with Producer(sidecar.socket) as producer:
            producer.greet()
            Past(producer, MODELS, ago=20.0).tell(sidecar)
            with opened(url, may=UNREACHABLE) as seen:
                page = seen.page
                live(page)
                expect(page.locator("tr.model")).to_have_count(3)
                assert sidecar.stop() == 0
                ask_now(page)
                expect(page.locator("#status")).to_contain_text("no answer from the sidecar since")
                expect(page.locator("#status")).to_contain_text("trying again")
                expect(page.locator("tr.model")).to_have_count(3)  # as they were known
                with (
                    start_watched(tmp_path, "--http", url.removeprefix("http://")) as again,
                    Producer(again.socket) as other,
                ):
                    other.greet()
                    ask_now(page)
                    live(page)
                    expect(page.locator("tr.model")).to_have_count(3)
                    page.get_by_role("button", name="heavy").click()
                    expect(page.locator("tr.below:visible")).to_contain_text(
                        "all since it is known"
                    )
                    page.locator("tr.below:visible details summary").click()
                    rows = page.locator("tr.below:visible details tbody tr")
                    expect(rows).to_have_count(len(intervals_of(again, "heavy")))
