"""`/api/v1/overview`, and the page's files."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import trio

from lilo_engine_hook import wire
from lilo_sidecar.core.history import MAX_INTERVALS, MAX_MODELS_SHOWN, SAMPLE_INTERVAL
from lilo_sidecar.core.recent_spans import MAX_SPANS
from lilo_sidecar.core.timing import LaneNow
from lilo_sidecar.state.recorder import Recorder
from lilo_sidecar.state.snapshot import dump
from lilo_sidecar.web import assets
from lilo_sidecar.web.answers import BadRequestError
from lilo_sidecar.web.overview import FRESH, Overview
from lilo_sidecar.web.query import parse_overview_query
from support.feed import begin, finish, hello, span
from support.site import Site, busy, check


class Watched(Site):
    """With a producer whose events go the whole way, at the times that they tell of."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = 0

    def greet(self) -> None:
        self.recorder.connect(hello(started=1.0), b"")

    def feed(self, *events: wire.Event) -> None:
        batch = wire.Batch(self.sent + 1, 0, 0, events)
        self.sent += len(events)
        self.recorder.apply("boot", batch, b"")

    def look(self, now: float) -> None:
        """The history's look, at that time."""
        self.now = now
        self.api.overview.sample()

    def overview(self, query: str = "") -> dict[str, Any]:
        return check("Overview", self.get(f"/api/v1/overview{query}"))


@pytest.fixture
def site() -> Watched:
    return Watched()


def step_of(model: dict[str, Any]) -> list[float]:
    return list(model["step"].values())


def test_before_there_is_a_trainer_it_is_empty(site: Watched) -> None:
    """As documented, with nothing in it."""
    site.now = 102.5
    answer = site.overview()
    assert (answer["now"], answer["uptime_s"]) == (102.5, 2.5)
    assert answer["trainer"] == {
        "connected": False,
        "last_heard_unix_s": None,
        "last_heard_age_s": None,
    }
    assert (answer["models"], answer["spans"], answer["lanes"]) == ([], {}, {})
    assert answer["journal"] == {"writing": False, "reason": "there is no state directory"}


def test_models_and_lanes_are_told_of_as_they_are(site: Watched) -> None:
    """Queues, batches, where the time went up to the last event that tells; what the lanes do now
    and did."""
    site.greet()
    site.feed(
        wire.Register(100.0, "m"),
        begin("m", 1, 101.0),
        begin("n", 1, 101.0),
        span(["m", "n"], 102, 104, ids=["m:1", "n:1"], n=2),
        finish("m", 1, 104.0),
        begin("m", 2, 105.0),
        wire.State(106.0, ("m",), "executing:forward_backward"),
    )
    site.now = 106.5
    answer = site.overview()
    m, n = answer["models"]
    assert (m["model_id"], m["queued"], m["running"]) == ("m", 0, 1)
    assert (m["executions"], m["commands"]) == (1, 2)
    assert (m["since"], m["until"]) == (100.0, 105.0)
    assert step_of(m) == [1.0, 1.0, 0.0, 2.0, 0.0, 1.0]
    assert (n["model_id"], n["queued"], n["running"]) == ("n", 0, 1)
    assert answer["lanes"] == {"gpu": {"operation": "forward_backward", "for_s": 0.5}}
    assert answer["spans"] == {"gpu": [[102.0, 104.0, "forward_backward", ["m", "n"]]]}
    assert answer["spans_from"] == {"gpu": 100.0}
    assert answer["delivery"]["applied"] == 7
    assert answer["trainer"]["connected"]


def test_accounts_are_told_of_before_anybody_settles_them(site: Watched) -> None:
    """Whoever watches sees steps as they end, though no reader asked for the model; and what is
    told is what a reader would be."""
    busy(site)
    site.now = 102.0
    before = dump(site.core)
    m = site.overview()["models"][0]
    assert dump(site.core) == before
    timing = site.get("/api/v1/timing?model_id=m").json()["step"]
    assert (m["since"], m["until"]) == (timing["since"], timing["until"])
    assert m["step"] == {name: timing[name] for name in m["step"]}


def test_intervals_are_the_last_minutes(site: Watched) -> None:
    """From one look at the totals to the next; whoever has some of them is told the rest."""
    site.greet()
    site.look(100.0)
    site.feed(begin("m", 1, 101.0), span(["m"], 102, 104, ids=["m:1"]), finish("m", 1, 104.0))
    site.look(105.0)
    first = site.overview()
    assert first["models"][0]["intervals"] == [[104.0, 2.0, 0.0, 0.0, 1.0, 0.0, 0.0]]
    site.now = 109.5
    site.feed(begin("m", 2, 106.0), span(["m"], 106, 109, ids=["m:2"]), finish("m", 2, 109.0))
    site.look(110.0)
    whole = site.overview()["models"][0]["intervals"]
    assert whole[1:] == [[109.0, 3.0, 0.0, 0.0, 0.0, 0.0, 2.0]]
    rest = site.overview(f"?after={first['now']}")
    assert rest["models"][0]["intervals"] == whole[1:]
    assert rest["spans"] == {"gpu": [[106.0, 109.0, "forward_backward", ["m"]]]}
    again = site.overview(f"?after={rest['now']}")
    assert (again["models"][0]["intervals"], again["spans"]) == ([], {})


def test_totals_are_not_added_up_for_everybody_anew(site: Watched) -> None:
    """Within a second all who ask hear of the same totals."""
    site.greet()
    site.now = 110.0
    assert site.overview()["models"] == []
    site.feed(wire.Register(110.0, "m"))
    site.now = 110.0 + FRESH / 2
    assert site.overview()["models"] == []
    site.now = 110.0 + FRESH
    assert len(site.overview()["models"]) == 1
    site.now = 50.0  # the clock was set back
    site.feed(wire.Register(50.0, "n"))
    assert len(site.overview()["models"]) == 2


def test_history_is_kept_while_nobody_asks(autojump_clock: trio.testing.MockClock) -> None:
    """The task looks at the totals every few seconds."""
    site = Watched()
    site.greet()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(site.api.overview.run)
            site.feed(begin("m", 1, 101.0), span(["m"], 102, 104, ids=["m:1"]))
            site.now = 105.0
            await trio.sleep(SAMPLE_INTERVAL * 1.5)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=autojump_clock)
    assert len(site.overview()["models"][0]["intervals"]) == 1


def test_an_answer_is_bounded(site: Watched) -> None:
    """With more models, intervals and spans than are shown: those that moved last, a count of the
    others, and less than two megabytes. Others get their turns while it is written."""
    site.greet()
    models = MAX_MODELS_SHOWN + 3
    for step in range(20):
        for at in range(models):
            t = 100.0 + 5 * step + at * 0.01
            site.feed(
                begin(f"model-{at:03}", step, t),
                span([f"model-{at:03}"], t, t + 0.01, ids=[f"model-{at:03}:{step}"]),
                finish(f"model-{at:03}", step, t + 0.01),
            )
        site.look(105.0 + 5 * step)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async def main() -> bytes:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(others)
            body = await site.api.overview.answer()
            nursery.cancel_scope.cancel()
        return body

    body = trio.run(main)
    answer = json.loads(body)
    assert answer == json.loads(site.get("/api/v1/overview").content)
    assert turns >= 30
    assert len(body) < 2_000_000
    assert [model["model_id"] for model in answer["models"]] == [
        f"model-{at:03}" for at in range(3, models)
    ]
    assert answer["models_left_out"] == 3
    assert sum(map(len, answer["spans"].values())) == MAX_SPANS
    intervals = [model["intervals"] for model in answer["models"]]
    assert 0 < sum(map(len, intervals)) <= MAX_INTERVALS


def test_lanes_that_work_now_say_how_far_back_they_are_known(site: Watched) -> None:
    """Also one none of whose spans is known yet, and only as far as is kept."""
    busy(site)
    site.now = 5000.0
    answer = site.overview()
    assert answer["spans_from"] == {"gpu": 4400.0}
    assert LaneNow("forward_backward", 4990.0, True) in site.recorder.health().lanes.values()


@pytest.mark.parametrize(
    ("query", "code"),
    [
        (b"after=", "bad_after"),
        (b"after=yesterday", "bad_after"),
        (b"after=-1", "bad_after"),
        (b"after=1e9", "bad_after"),
        (b"after=nan", "bad_after"),
        (b"after=1&after=2", "repeated_parameter"),
        (b"since=1", "unknown_parameter"),
    ],
)
def test_queries_that_are_refused(query: bytes, code: str) -> None:
    """Anything but one time, as answers have it."""
    with pytest.raises(BadRequestError) as caught:
        parse_overview_query(query)
    assert caught.value.code == code


def test_overview_takes_nothing_from_readers(site: Watched) -> None:
    """Nobody's interval ends by it."""
    busy(site)
    before = site.get("/api/v1/timing?model_id=m&reader=loop").json()
    site.overview()
    assert site.get("/api/v1/timing?model_id=m&reader=loop").json() == before


def test_version_and_core_are_what_it_was_given() -> None:
    """An overview can be had without the HTTP interface."""
    site = Site()
    recorder = Recorder(site.core, None, site.clock)
    body = trio.run(Overview(recorder, site.clock, "1.2.3").answer)
    assert json.loads(body)["version"] == "1.2.3"


# --- the page's files -------------------------------------------------------------------------


def files_of_the_page() -> set[str]:
    page = Path(str(resources.files("lilo_sidecar.web") / "page"))
    found = {path.relative_to(page).as_posix() for path in page.rglob("*") if path.is_file()}
    return found - {"vendor/README.md", "vendor/uPlot.LICENSE"}


def test_every_file_of_the_page_is_served(site: Watched) -> None:
    """From the package, as it is there, with its type; and nothing else is."""
    assert set(assets.PATHS.values()) == files_of_the_page()
    for path, name in assets.PATHS.items():
        answer = site.get(path)
        kept = resources.files("lilo_sidecar.web").joinpath("page", name).read_bytes()
        assert (answer.status_code, answer.content) == (200, kept), path
    assert site.get("/").headers["content-type"] == "text/html; charset=utf-8"
    assert site.get("/page/page.js").headers["content-type"].startswith("text/javascript")
    for path in ("/page/", "/page/vendor/README.md", "/page/../api.py", "/page/%2e%2e/api.py"):
        assert site.get(path).status_code == 404, path
    assert site.get("/", method="POST").status_code == 405


def test_the_page_runs_only_its_own_files(site: Watched) -> None:
    """Every one of them says so, and is never taken for something else, nor framed."""
    for path in assets.PATHS:
        headers = site.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "style-src 'self';" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"


def test_the_page_is_open_and_its_figures_are_not(site: Watched) -> None:
    """With a token, the page comes without it, to ask for it; what it draws from does not."""
    site.app = site.api.app(token="secret")
    for path in assets.PATHS:
        assert site.get(path).status_code == 200
    assert site.get("/api/v1/overview").status_code == 401


def test_what_others_wrote_is_named_with_its_licence() -> None:
    """The chart library's file says the version that the table does, and its licence is there."""
    vendor = resources.files("lilo_sidecar.web") / "page" / "vendor"
    table = (vendor / "README.md").read_text()
    assert "1.6.32 | MIT" in table
    assert "leeoniya/uPlot (v1.6.32)" in (vendor / "uPlot.iife.min.js").read_text()[:400]
    assert "MIT License" in (vendor / "uPlot.LICENSE").read_text()
