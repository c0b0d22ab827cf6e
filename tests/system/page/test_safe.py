"""What the page must not do, whatever it is given."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from support.producer import Producer
from support.shown_page import (
    HOSTILE,
    MODELS,
    Open,
    live,
)
from support.sidecar import SidecarProcess, wait_until
from support.watched import start_watched


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

            def complaints() -> int:
                seen.catch_up()
                return len(seen.complaints)

            wait_until(complaints, lambda count: count >= 4)
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


def test_no_token_no_questions(opened: Open, tmp_path: Path) -> None:
    """While it waits for a token it hardly asks: each question would be refused, and be in the
    log of whatever stands between. Now and then it does, for a sidecar that came to want none."""
    file = tmp_path / "token"
    file.write_text("correct-horse\n")
    file.chmod(0o600)
    started = start_watched(tmp_path, "--token-file", file, token="correct-horse")
    with started as sidecar, opened(sidecar.url, may=re.compile("401")) as seen:
        page = seen.page
        page.clock.install()
        page.reload()
        expect(page.locator("#token")).to_be_focused()

        def asked() -> int:
            seen.catch_up()
            return sum(url.endswith("/overview") for url in seen.requests)

        before = asked()
        page.clock.run_for(25_000)
        assert asked() == before
        page.clock.run_for(25_000)
        wait_until(asked, lambda count: count == before + 1)
