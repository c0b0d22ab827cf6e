"""What the page shows, and that it is what the sidecar has."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from playwright.sync_api import expect

from lilo_engine_hook import wire
from support.feed import span
from support.producer import Producer
from support.shown_page import (
    HOSTILE,
    MODELS,
    Open,
    ask_now,
    cells,
    drawn,
    hover,
    intervals_of,
    live,
    painted,
)
from support.sidecar import SidecarProcess, wait_until
from support.watched import start_watched


def test_it_draws(opened: Open, busy: tuple[SidecarProcess, Producer]) -> None:
    """A row for each model, whose shares and table are the figures of the sidecar's answer; bars
    and lanes that have something on them; queue, batch factor and delivery."""
    sidecar, _ = busy
    with opened(sidecar.url) as seen:
        page = seen.page
        live(page)
        expect(page.locator("tr.model")).to_have_count(len(MODELS) + len(HOSTILE))
        answer = sidecar.http.get("/api/v1/overview").json()
        heavy = next(model for model in answer["models"] if model["model_id"] == "heavy")
        parts = [sum(column) for column in list(zip(*heavy["intervals"], strict=True))[1:]]
        expected = [100 * part / sum(parts) for part in parts]
        *shares, queue, batch = cells(page, "heavy")
        for share, wanted in zip(shares, expected, strict=True):
            assert float(share.strip("<%")) == pytest.approx(wanted, abs=0.51), (shares, expected)
        assert queue == f"{heavy['queued']} + {heavy['running']}"
        assert float(batch) == pytest.approx(heavy["commands"] / heavy["executions"], abs=0.0051)
        operations = page.locator("#operations li").count()
        assert operations >= 4
        wait_until(
            lambda: [painted(page, "#lanes canvas", f"--operation-{at}") for at in range(8)],
            lambda pixels: sum(pixels) > 1000,
        )
        strip = "tr.model:has(.id[title=heavy]) .strip canvas"
        page.locator(strip).scroll_into_view_if_needed()
        page.wait_for_selector(strip)
        for part in ("mine_s", "shared_batch_s", "neighbors_s", "overhead_s", "client_s"):
            drawn(page, strip, f"--{part}", more_than=10)
        expect(page.locator("#summary")).to_contain_text(
            f"all {answer['delivery']['sent']:,} events counted"
        )
        page.locator("#spans summary").click()
        rows = page.locator("#spans tbody tr")
        spans = [[t0, lane, name] for lane, s in answer["spans"].items() for t0, _, name, _ in s]
        _, lane, name = max(spans)
        expect(rows.first.locator("td").nth(0)).to_have_text(lane)
        expect(rows.first.locator("td").nth(1)).to_have_text(name)


def test_durations_are_read_as_they_are(
    opened: Open, busy: tuple[SidecarProcess, Producer]
) -> None:
    """Three digits, whatever zeros they have."""
    with opened(busy[0].url) as seen:
        said = seen.page.evaluate(
            "async () => { const { duration } = await import('/page/format.js');"
            " return [0, 0.0000125, 0.0012, 0.1, 0.12, 0.5, 0.9999, 1.5, 180].map(duration); }"
        )
    assert said == [
        *("0 s", "13 µs", "1.2 ms", "100 ms", "120 ms", "500 ms", "1.00 s", "1.50 s"),
        "3 min 0 s",
    ]


def test_a_model_is_shown_closely(opened: Open, busy: tuple[SidecarProcess, Producer]) -> None:
    """Its row opens: bars with axes, which say what the pointer is on; and as tables the sums and
    every interval, as many as the sidecar has."""
    sidecar, _ = busy
    with opened(sidecar.url) as seen:
        page = seen.page
        live(page)
        page.get_by_role("button", name="heavy").click()
        below = page.locator("tr.below:visible")
        expect(below.locator("table").first).to_contain_text("all since it is known")
        drawn(page, "tr.below:not([hidden]) .drawn canvas", "--mine_s", more_than=1000)
        hover(below.locator(".u-over"), 0.7)
        expect(below.locator(".readout")).to_have_text(re.compile("to .*: mine .*%"))
        below.locator("details summary").click()
        intervals = intervals_of(sidecar, "heavy")
        expect(below.locator("details tbody tr")).to_have_count(len(intervals))
        lanes = page.locator("#lanes .u-over")
        readout = page.locator("#lane-readout")
        for at in range(50, 100):
            hover(lanes, at / 100)
            if readout.inner_text():
                break
        expect(readout).to_have_text(re.compile(r": \d\d:\d\d:\d\d\.\d\d, .*s, "))


def test_operations_keep_their_colours(opened: Open, tmp_path: Path) -> None:
    """Those that engines have, whichever the page sees first; a name of an engine's own gets one
    that no other has."""
    names = ("of-our-own", "optim_step", "persist:weights", "forward_backward")
    with start_watched(tmp_path) as sidecar, Producer(sidecar.socket) as producer:
        producer.greet()
        with opened(sidecar.url) as seen:
            shown = seen.page.locator("#operations li")
            for number, name in enumerate(names):
                now = time.time()
                producer.send(span(["m"], now - 0.1, now, name))
                ask_now(seen.page)
                expect(shown).to_have_count(number + 1)
            swatch = "(e) => getComputedStyle(e.querySelector('.swatch')).backgroundColor"
            colours = {item.inner_text(): item.evaluate(swatch) for item in shown.all()}
            sheet = [seen.page.evaluate(_COLOUR, f"--operation-{number}") for number in range(8)]
    assert colours == {
        "forward_backward": sheet[0],
        "optim_step": sheet[2],
        "persist:weights": sheet[5],
        "of-our-own": sheet[7],
    }


_COLOUR = """(name) => {
    const swatch = document.createElement("i");
    swatch.style.color = `var(${name})`;
    document.body.append(swatch);
    const { color } = getComputedStyle(swatch);
    swatch.remove();
    return color;
}"""


def test_what_was_lost_is_said(opened: Open, tmp_path: Path) -> None:
    """How many events, and what it means for the figures."""
    with start_watched(tmp_path) as sidecar, Producer(sidecar.socket) as producer:
        producer.greet()
        producer.work(("m",))
        producer.socket.sendall(wire.encode_batch(producer.sent + 1, 7, 2, wire.join([])))
        producer.acknowledged()
        with opened(sidecar.url) as seen:
            live(seen.page)
            notices = seen.page.locator("#notices")
            expect(notices).to_contain_text("7 events turned away at a bound or never arrived")
            expect(notices).to_contain_text("2 observer calls made no valid event")
            expect(seen.page.locator("#summary")).to_contain_text("9 of 10 events lost")


def test_models_are_found_and_put_in_order(
    opened: Open, busy: tuple[SidecarProcess, Producer]
) -> None:
    """By a part of their names, in any case; by what they spent most time on."""
    with opened(busy[0].url) as seen:
        page = seen.page
        live(page)
        page.locator("#order").select_option("mine_s")
        expect(page.locator("tr.model .id").first).to_have_text("heavy")
        page.locator("#find").fill("IGH")
        expect(page.locator("tr.model")).to_have_count(1)
        expect(page.locator("#found")).to_have_text("1 of 7 models")
        page.locator("#find").fill("")
        expect(page.locator("tr.model")).to_have_count(7)
