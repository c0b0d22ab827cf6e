"""The page at `/`, in a real browser."""

from __future__ import annotations

import hashlib
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from operator import ne
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, expect

from lilo_engine_hook import wire
from support.browser import TIMEOUT, Visit, chromium, visit
from support.feed import begin, finish, span
from support.producer import Producer
from support.sidecar import SidecarProcess, wait_until
from support.watched import Past, start_watched

expect.set_options(timeout=TIMEOUT)
DESK = {"width": 1280, "height": 900}
PHONE = {"width": 360, "height": 740}
MODELS = ("heavy", "light", "tiny")
HOSTILE = ("<img src=x onerror=alert(1)>", "x" * wire.MAX_MODEL_ID, "نموذج", "a\u202eb")
ROW_OF_TINY = "tr.model:has(.id[title=tiny])"
UNREACHABLE = re.compile("net::ERR_|Failed to load resource")

Open: TypeAlias = Callable[..., AbstractContextManager[Visit]]


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


# --- what it shows ----------------------------------------------------------------------------


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
        producer.socket.sendall(wire.encode_batch(producer.sent + 1, 7, 2, []))
        producer.acknowledged()
        with opened(sidecar.url) as seen:
            live(seen.page)
            notices = seen.page.locator("#notices")
            expect(notices).to_contain_text("7 events turned away at a bound or never arrived")
            expect(notices).to_contain_text("2 observer calls made no valid event")
            expect(seen.page.locator("#summary")).to_contain_text("9 of 10 events lost")


# --- whoever looks at it ----------------------------------------------------------------------


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


# --- what it must not do ----------------------------------------------------------------------


def test_ids_are_text(opened: Open, busy: tuple[SidecarProcess, Producer]) -> None:
    """Whatever a client calls its model: it is shown as it is, and does nothing."""
    with opened(busy[0].url) as seen:
        live(seen.page)
        shown = seen.page.locator("tr.model .id").all_text_contents()
        assert set(shown) == {*MODELS, *HOSTILE}
        seen.page.get_by_role("button", name="<img").click()
        assert seen.page.locator("#table img, #spans img").count() == 0
        assert seen.page.evaluate("document.title") == "Lilo timing"


def test_nothing_else_runs_in_it(opened: Open, busy: tuple[SidecarProcess, Producer]) -> None:
    """Should markup ever get in: no script of it runs, no picture of it is fetched, nothing is
    sent elsewhere."""
    refused = re.compile("Content Security Policy|violates the following|ERR_BLOCKED_BY_CSP")
    with opened(busy[0].url, may=refused) as seen:
        live(seen.page)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setblocking(False)
            port = listener.getsockname()[1]
            seen.page.evaluate(_INTRUDER, port)
            wait_until(lambda: len(seen.complaints), lambda count: count >= 4)
            assert seen.page.evaluate("ran") == []
            with pytest.raises(BlockingIOError):
                listener.accept()


_INTRUDER = """async (port) => {
    window.ran = [];
    const script = document.createElement("script");
    script.textContent = "ran.push('script')";
    document.body.append(script);
    const add = (markup) => document.body.insertAdjacentHTML("beforeend", markup);
    add(`<img src=http://127.0.0.1:${port}/ onerror="ran.push('picture')">`);
    add(`<a id=intruder onclick="ran.push('link')">a</a>`);
    document.getElementById("intruder").click();
    const signal = AbortSignal.timeout(2000);
    await fetch(`http://127.0.0.1:${port}/`, { signal }).then(() => ran.push("fetch"), () => {});
}"""


def test_token_is_asked_for_and_kept_out_of_sight(opened: Open, tmp_path: Path) -> None:
    """Without it there are no figures; a wrong one is said to be; the right one lasts as long as
    the tab, is in no address, and can be forgotten. axe finds nothing here, either."""
    file = tmp_path / "token"
    file.write_text("correct-horse\n")
    file.chmod(0o600)
    started = start_watched(tmp_path, "--token-file", file, token="correct-horse")
    with started as sidecar, opened(sidecar.url, may=re.compile("401")) as seen:
        page = seen.page
        expect(page.locator("#access")).to_be_visible()
        expect(page.locator("#token")).to_be_focused()
        expect(page.locator("#notices")).to_be_empty()
        assert Axe().run(page).violations_count == 0
        page.keyboard.type("wrong")
        page.keyboard.press("Enter")
        expect(page.locator("#refused")).to_contain_text("does not accept this token")
        page.locator("#token").fill("with a space")
        page.keyboard.press("Enter")
        expect(page.locator("#refused")).to_contain_text("one word")
        page.locator("#token").fill("correct-horse")
        page.get_by_role("button", name="Show the figures").click()
        expect(page.locator("#notices")).to_contain_text("No trainer has reported yet")
        expect(page.locator("#access")).to_be_hidden()
        page.reload()
        expect(page.locator("#notices")).to_contain_text("No trainer has reported yet")
        page.get_by_role("button", name="Forget the token").click()
        expect(page.locator("#access")).to_be_visible()
        assert page.evaluate("sessionStorage.length + localStorage.length") == 0
        assert page.evaluate("document.cookie") == ""
        assert not [asked for asked in seen.requests if "horse" in asked]
        assert "horse" not in page.content()
