"""`/metrics`: what it says, in which format, and that no counter of it ever goes back."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import TypeAlias

import httpx
import pytest
import trio
from prometheus_client import parser as text_format
from prometheus_client.openmetrics import parser as openmetrics

from lilo_engine_hook import wire
from lilo_sidecar.core.lanes import MAX_LANES
from lilo_sidecar.web import metrics
from lilo_sidecar.web.metric_families import MAX_NAMED_MODELS
from support.feed import Feed, begin, finish, hello, span
from support.schedule import events, random_schedule
from support.site import Site

ROOT = Path(__file__).parents[2]
OPENMETRICS = {"accept": "application/openmetrics-text; version=1.0.0"}
Sample: TypeAlias = tuple[str, frozenset[tuple[str, str]]]


@pytest.fixture
def site() -> Site:
    return Site()


def scrape(site: Site) -> dict[Sample, float]:
    """Every sample, as a strict parser of OpenMetrics has it; none may come twice."""
    return samples(site.get("/metrics", headers=OPENMETRICS).text)


def samples(text: str) -> dict[Sample, float]:
    found: dict[Sample, float] = {}
    for family in openmetrics.text_string_to_metric_families(text):  # type: ignore[no-untyped-call]
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


def value(found: dict[Sample, float], name: str, **labels: str) -> float:
    return found[name, frozenset(labels.items())]


def values(found: dict[Sample, float], name: str, label: str) -> dict[str, float]:
    """Of one name, by one of its labels."""
    return {dict(labels)[label]: value for (is_of, labels), value in found.items() if is_of == name}


def counters(found: dict[Sample, float]) -> dict[Sample, float]:
    return {sample: value for sample, value in found.items() if sample[0].endswith("_total")}


# --- what it says --------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _always_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks again is told of what has come since."""
    monkeypatch.setattr(metrics, "FRESH", 0.0)


def test_there_are_two_content_types_whatever_is_asked_for() -> None:
    """So no more than two answers are kept, and a client that makes versions up gets no new one."""
    asked = [f"application/openmetrics-text; version=1.0.{number}" for number in range(50)]
    asked += [f"text/plain; version=1.0.{number}; escaping=values" for number in range(50)]
    kinds = {metrics.encoder(accept)[1] for accept in (*asked, "", "*/*")}
    assert len(kinds) == 2


def test_who_asks_at_once_shares_an_answer(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many ask, and whatever has come since: it is made once a moment."""
    monkeypatch.setattr(metrics, "FRESH", 1e9)
    before = scrape(site)
    Feed(site.core)(span(["m"], 0, 1))
    assert scrape(site) == before
    monkeypatch.setattr(metrics, "FRESH", 0.0)
    assert scrape(site) != before


def test_figures_are_those_of_the_timing_answer(site: Site) -> None:
    """Phases, waits, shares, steps, lanes, milestones and delivery are what `/api/v1/timing`
    has of the same history."""
    feed = Feed(site.core, hello(started=1.0))
    feed(
        wire.Register(2.0, "m"),
        span(["m"], 3.0, 4.0, "accept"),
        wire.Gauge(2.0, "backend_ready"),
        begin("m", 1, 5.0),
        begin("n", 1, 5.0),
        span(["m", "n"], 6.0, 8.0, ids=["m:1", "n:1"], n=2),
        finish("m", 1, 8.5),
        finish("n", 1, 8.5),
        begin("m", 2, 9.0),
        begin("m", 3, 9.0),
        wire.State(10.0, ("m",), "executing:forward_backward"),
        dropped=3,
        rejected=2,
    )
    answer, model = site.get("/api/v1/timing").json(), site.get("/api/v1/timing?model_id=m").json()
    found = scrape(site)
    phases = answer["phases"]
    assert values(found, "lilo_phase_records_total", "phase") == {
        name: phase["count"] for name, phase in phases.items()
    }
    assert values(found, "lilo_phase_seconds_total", "phase") == {
        name: phase["total_s"] for name, phase in phases.items()
    }
    assert values(found, "lilo_phase_commands_total", "phase") == {
        name: phase["mean_batch"] * phase["count"] for name, phase in phases.items()
    }
    assert values(found, "lilo_gpu_lane_seconds_total", "kind") == answer["shares"]
    for kind, waits in answer["waits"].items():
        for part, seconds in waits.items():
            labels = {"kind": kind, "part": part.removesuffix("_s")}
            assert value(found, "lilo_queue_wait_seconds_total", **labels) == seconds
    parts = ("mine", "shared_batch", "neighbors", "overhead", "persist", "client")
    for part in parts:
        seconds = value(found, "lilo_model_step_seconds_total", model="m", part=part)
        assert seconds == model["step"][f"{part}_s"]
        others = value(found, "lilo_model_step_seconds_total", model="n", part=part)
        assert value(found, "lilo_step_seconds_total", part=part) == seconds + others
    assert value(found, "lilo_model_executions_total", model="m") == 2
    assert value(found, "lilo_model_batched_commands_total", model="m") == 3
    assert value(found, "lilo_model_queued_commands", model="m") == 1
    assert value(found, "lilo_model_running_commands", model="m") == 1
    assert value(found, "lilo_queued_commands") == 1
    assert value(found, "lilo_running_commands") == 1
    assert (value(found, "lilo_models"), value(found, "lilo_models_left_out")) == (2, 0)
    delivery = answer["delivery"]
    assert value(found, "lilo_events_sent_total") == delivery["sent"] == 16
    for outcome in ("applied", "dropped", "rejected"):
        assert value(found, "lilo_events_total", outcome=outcome) == delivery[outcome] > 0
    assert value(found, "lilo_lane_busy", lane="gpu") == 1
    assert value(found, "lilo_lane_operation_seconds", lane="gpu") == 90.0
    assert value(found, "lilo_trainer_connected") == value(found, "lilo_producers") == 1
    assert value(found, "lilo_trainer_start_time_seconds") == 1.0
    milestones = values(found, "lilo_trainer_milestone_seconds", "milestone")
    assert {f"trainer.{name}_s": at for name, at in milestones.items()} == answer["gauges"]
    assert value(found, "lilo_journal_writing") == 0  # this one has none


def test_before_a_trainer_every_counter_is_there_that_has_no_name_of_its_own(site: Site) -> None:
    """A counter that appears with its first count would hide that count from `increase`."""
    found = scrape(site)
    for outcome in ("applied", "dropped", "rejected"):
        assert value(found, "lilo_events_total", outcome=outcome) == 0
    assert value(found, "lilo_records_left_out_total", reason="negative") == 0
    assert value(found, "lilo_faults_total", part="core") == 0
    assert value(found, "lilo_trainer_connected") == 0
    names = {name for name, _ in found}
    assert not {n for n in names if n.startswith(("lilo_trainer_last", "lilo_trainer_start"))}


def test_looking_changes_nothing_and_readers_take_nothing(site: Site) -> None:
    """Two scrapes around a reset are the same, and so is what the reader is given."""
    feed = Feed(site.core)
    feed(begin("m", 1, 0.0), span(["m"], 1.0, 3.0, ids=["m:1"]))
    before = counters(scrape(site))
    given = site.get("/api/v1/timing?model_id=m&reset=true").json()
    assert given["phases"]["forward_backward.execute"]["count"] == 1
    after = counters(scrape(site))
    assert without_process(before) == without_process(after)


def without_process(found: dict[Sample, float]) -> dict[Sample, float]:
    return {sample: value for sample, value in found.items() if not sample[0].startswith("process")}


@pytest.mark.parametrize("seed", range(3))
def test_counters_never_go_back(seed: int) -> None:
    """Whatever comes in, whoever resets and acknowledges, whichever models go and trainers are
    replaced: of all models together nothing falls or is gone, and nothing of a model that stays."""
    random, site = Random(seed), Site()
    feed = Feed(site.core, hello("boot 0"))
    scrapes = [counters(scrape(site))]
    gone: set[str] = set()
    for number in range(2):
        for event in events(random_schedule(random, 12), random):
            # Times as they really are: so large that their differences are rounded.
            names = ("t0", "t1") if isinstance(event, wire.Span) else ("t",)
            feed(event._replace(**{n: 1.7e9 + getattr(event, n) / 3 for n in names}))
            what = random.random()
            if what < 0.2:
                model = random.choice(("*", "a", "b", "c"))
                site.get(f"/api/v1/timing?model_id={model}&reset=true&reader=r{what > 0.1}")
            elif what < 0.25:
                gone.add(model := random.choice("abc"))
                feed(wire.Forget(1.8e9, model), wire.Register(1.8e9, model))
            if random.random() < 0.3:
                scrapes.append(counters(scrape(site)))
        site.core.disconnect(feed.who.boot_id, 0.0)
        feed = Feed(site.core, hello(f"boot {number + 1}"))
        gone.update("abc")
        scrapes.append(counters(scrape(site)))
    for before, after in pairwise(scrapes):
        for sample, count in before.items():
            of = dict(sample[1]).get("model")
            if of not in gone:
                assert after[sample] >= count, sample
    assert len(scrapes) > 10


# --- bounds --------------------------------------------------------------------------------


def test_models_with_series_of_their_own_are_bounded(site: Site) -> None:
    """The ones that were active last have them; the rest is in the sums of all, and counted."""
    feed = Feed(site.core)
    for number in range(MAX_NAMED_MODELS + 2):
        feed(begin(f"m{number}", 1, float(number)), span([f"m{number}"], number, number + 1))
    feed(span(["m0"], 1000.0, 1001.0))
    found = scrape(site)
    named = values(found, "lilo_model_executions_total", "model")
    assert len(named) == MAX_NAMED_MODELS
    assert {"m1", "m2"}.isdisjoint(named)
    assert "m0" in named
    assert value(found, "lilo_models") == MAX_NAMED_MODELS + 2
    assert value(found, "lilo_models_left_out") == 2
    assert value(found, "lilo_queued_commands") == MAX_NAMED_MODELS + 2
    assert value(found, "lilo_step_seconds_total", part="mine") == MAX_NAMED_MODELS + 3


def test_lanes_are_told_of_while_idle_and_are_bounded(site: Site) -> None:
    """The gpu lane always is; another from when it was seen to work, up to as many as a trainer
    has."""
    assert values(scrape(site), "lilo_lane_busy", "lane") == {"gpu": 0}
    feed = Feed(site.core)
    feed(wire.Activity(1.0, "checkpoint", "m", "m:1", "save_weights"))
    assert values(scrape(site), "lilo_lane_busy", "lane") == {"gpu": 0, "checkpoint": 1}
    feed(wire.Activity(2.0, "checkpoint", None, None, None))
    found = scrape(site)
    assert values(found, "lilo_lane_busy", "lane") == {"gpu": 0, "checkpoint": 0}
    assert value(found, "lilo_lane_operation_seconds", lane="checkpoint") == 0
    for number in range(MAX_LANES + 5):
        feed(wire.Activity(3.0, f"lane {number}", "m", "m:1", "save_weights"))
        scrape(site)
        feed(wire.Activity(3.0, f"lane {number}", None, None, None))
    assert len(values(scrape(site), "lilo_lane_busy", "lane")) == MAX_LANES


def test_producers_go_on_while_an_answer_is_written(site: Site) -> None:
    """The most models and phases there are take longer to write down than the one thread of the
    daemon may be kept from its other work."""
    feed = Feed(site.core)
    for number in range(MAX_NAMED_MODELS):
        feed(span([f"m{number}"], number, number + 1, f"kind{number % 200}"))
    turns = 0

    async def act(client: httpx.AsyncClient) -> None:
        async with trio.open_nursery() as nursery:

            async def turn() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await trio.lowlevel.checkpoint()

            nursery.start_soon(turn)
            await client.get("/metrics")
            nursery.cancel_scope.cancel()

    site.visit(act)
    assert turns > 3  # a thousand, commonly; one if there is none to be had meanwhile


# --- format --------------------------------------------------------------------------------


ODD_NAMES = ['quo"te', "back\\slash", "new\nline", "\r", "\0", "\x85\u2028", "{}=,#", "\U0001f600"]


def test_names_may_be_any_text(site: Site) -> None:
    """A model's id, and a kind, come out as they came in, in both formats; none breaks the
    answer or adds a line to it."""
    feed = Feed(site.core)
    for name in ODD_NAMES:
        feed(span([name], 0.0, 1.0, name))
    named = values(scrape(site), "lilo_model_executions_total", "model")
    assert set(named) == set(ODD_NAMES)
    assert set(values(scrape(site), "lilo_gpu_lane_seconds_total", "kind")) == set(ODD_NAMES)
    plain = site.get("/metrics").text
    found = [
        sample.labels["model"]
        for family in text_format.text_string_to_metric_families(plain)
        for sample in family.samples
        if sample.name == "lilo_model_executions_total"
    ]
    assert set(found) == set(ODD_NAMES)


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        (None, "text/plain; version=0.0.4; charset=utf-8"),
        ("*/*", "text/plain; version=0.0.4; charset=utf-8"),
        ("application/openmetrics-text", "application/openmetrics-text; version=1.0.0; charset=u"),
        (
            "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
        ),
        ("application/openmetrics-text; version=x", "text/plain; version=0.0.4"),
        ("text/plain; version=..", "text/plain; version=0.0.4"),
        ("application/json;;=,;version=", "text/plain; version=0.0.4"),
    ],
)
def test_format_is_what_was_asked_for(site: Site, accept: str | None, content_type: str) -> None:
    """OpenMetrics for those who ask for it, else the text format, whatever else was said."""
    answer = site.get("/metrics", headers={} if accept is None else {"accept": accept})
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith(content_type)
    assert answer.headers["cache-control"] == "no-store"
    assert answer.text.endswith("# EOF\n") == content_type.startswith("application")


def test_looking_is_all_there_is(site: Site) -> None:
    """HEAD is answered like GET; nothing else is."""
    assert site.get("/metrics", "HEAD").status_code == 200
    assert site.get("/metrics", "POST").status_code == 405


def test_figures_are_the_operators() -> None:
    """With a token nobody reads them without; without one, no other host's page does."""
    guarded = Site(token="s3cret")
    assert guarded.get("/metrics").status_code == 401
    assert guarded.get("/metrics", headers={"authorization": "Bearer s3cret"}).status_code == 200
    assert Site().get("/metrics", headers={"host": "attacker.example"}).status_code == 403


def test_page_lists_every_metric(site: Site) -> None:
    """The table in deploy/prometheus/README.md has each metric that is served, and no other."""
    Feed(site.core)(span(["m"], 0.0, 1.0))
    page = (ROOT / "deploy" / "prometheus" / "README.md").read_text()
    listed = re.findall(r"^\| `(lilo_\w+)", page, re.MULTILINE)
    text = site.get("/metrics").text
    served = re.findall(r"^# TYPE (lilo_\w+)", text, re.MULTILINE)
    with_server = {"lilo_http_connections", "lilo_http_connections_refused_total"}
    assert sorted(listed) == sorted({*served, *with_server})
