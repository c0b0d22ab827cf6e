"""The HTTP answers, and that they are what the OpenAPI document says."""

from __future__ import annotations

import httpx
import jsonschema
import pytest

from lilo_engine_hook import wire
from lilo_sidecar.core.timing import Timing
from lilo_sidecar.web.answers import BadRequestError
from lilo_sidecar.web.openapi import document
from lilo_sidecar.web.query import parse_timing_query
from support.feed import Feed, begin, hello, span
from support.site import Site, busy, check


@pytest.fixture
def site() -> Site:
    return Site()


def test_timing_answers_are_as_documented(site: Site) -> None:
    """Before there is a trainer, for one model, for all, and for one that nobody knows."""
    check("Timing", site.get("/api/v1/timing"))
    busy(site)
    known = check("Timing", site.get("/api/v1/timing?model_id=m"))
    assert known["uptime_s"] == 99.0
    assert known["phases"]["forward_backward.execute"]["mean_batch"] == 2
    assert known["gauges"]["trainer.backend_ready_s"] == 1.0
    assert known["waits"]
    assert known["shares"]
    assert known["step"]
    assert known["lanes"]
    everything = check("Timing", site.get("/api/v1/timing?model_id=*"))
    assert everything["model_id"] == "*"
    assert everything == site.get("/api/v1/timing").json()
    unknown = check("Timing", site.get("/api/v1/timing?model_id=nobody"))
    assert (unknown["phases"], unknown["step"]) == ({}, None)


def test_nested_records_are_documented_whole(site: Site) -> None:
    """What is inside an answer has no field that the document does not tell of, either."""
    busy(site)
    timing = site.get("/api/v1/timing?model_id=m").json()
    schemas = document("1")["components"]["schemas"]
    (wait,) = {tuple(wait) for wait in timing["waits"].values()}
    for name, record in (
        ("Delivery", timing["delivery"]),
        ("Phase", timing["phases"]["forward_backward.execute"]),
        ("Step", timing["step"]),
        ("Lane", timing["lanes"]["gpu"]),
        ("Wait", dict.fromkeys(wait)),
    ):
        assert set(record) == set(schemas[name]["properties"]), name


def test_health_answers_are_as_documented(site: Site) -> None:
    """Waiting, then with a trainer and its age; the lane shows what it is in."""
    waiting = check("Health", site.get("/healthz"))
    assert waiting["status"] == "waiting"
    assert waiting["trainer"] == {
        "connected": False,
        "last_heard_unix_s": None,
        "last_heard_age_s": None,
    }
    Feed(site.core, hello(started=1.0), now=100.0)
    site.now = 102.5
    health = check("Health", site.get("/healthz"))
    assert health["status"] == "ok"
    assert health["trainer"] == {
        "connected": True,
        "last_heard_unix_s": 100.0,
        "last_heard_age_s": 2.5,
    }
    assert (health["producers"], health["uptime_s"]) == (1, 2.5)


def test_health_shows_what_the_lane_is_in(site: Site) -> None:
    """A trainer that is stuck in one operation is visible from outside."""
    busy(site)
    lanes = check("Health", site.get("/healthz"))["lanes"]
    assert lanes == {"gpu": {"operation": "forward_backward", "for_s": 90.0}}


@pytest.mark.parametrize("token", [None, "a-token"])
def test_health_is_for_every_host_and_names_no_model(token: str | None) -> None:
    """A probe asks by any address, and without the token; it is told of lanes and counts, with no
    id of a model or a request."""
    site = Site(token)
    feed = Feed(site.core)
    feed(begin("secret", 1, 0.0), wire.State(1.0, ("secret",), "executing:forward"))
    answer = site.get("/healthz", headers={"host": "any.example"})
    assert check("Health", answer)["lanes"]["gpu"]["operation"] == "forward"
    assert "secret" not in answer.text


def test_counts_of_any_size_are_answered(site: Site) -> None:
    """A hostile producer's claims add up to more than 64 bits hold, and are shown as they are."""
    for number in range(3):
        Feed(site.core, hello(f"boot-{number}"))(dropped=2**63 - 1)
    answer = check("Timing", site.get("/api/v1/timing"))
    assert answer["delivery"]["dropped"] == 3 * (2**63 - 1)


@pytest.mark.parametrize(
    ("path", "method", "status", "code"),
    [
        ("/nowhere", "GET", 404, "not_found"),
        ("/page", "GET", 404, "not_found"),
        ("/api/v1/timing/", "GET", 404, "not_found"),
        ("/api/v1/timing", "POST", 405, "method_not_allowed"),
        ("/healthz", "DELETE", 405, "method_not_allowed"),
        ("/api/v1/timing?rest=true", "GET", 400, "unknown_parameter"),
        ("/api/v1/timing?reset=maybe", "GET", 400, "bad_reset"),
    ],
)
def test_errors_are_json(site: Site, path: str, method: str, status: int, code: str) -> None:
    """Whatever is wrong with a request, the answer is the documented error."""
    answer = site.get(path, method)
    assert answer.status_code == status
    assert check("Error", answer)["error"] == code
    assert answer.headers["cache-control"] == "no-store"
    if status == 405:
        assert "GET" in answer.headers["allow"]


def test_fault_is_a_json_error(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of the sidecar's own answers 500 and says where to look, not what went wrong."""

    def fail(*args: object, **kwargs: object) -> Timing:
        raise RuntimeError("secret")

    monkeypatch.setattr(site.core, "timing", fail)
    answer = site.get("/api/v1/timing")
    assert answer.status_code == 500
    assert check("Error", answer)["error"] == "internal_error"
    assert "secret" not in answer.text


def test_only_get_ends_an_interval(site: Site) -> None:
    """HEAD with a reset changes nothing; a reset of one model leaves the others alone."""
    busy(site)
    assert site.get("/api/v1/timing?model_id=m&reset=true", "HEAD").status_code == 200
    assert site.get("/api/v1/timing?model_id=m&reset=TRUE").json()["phases"]
    assert site.get("/api/v1/timing?model_id=m").json()["phases"] == {}
    assert site.get("/api/v1/timing?model_id=n").json()["phases"]
    assert site.get("/api/v1/timing").json()["phases"]


def test_only_a_get_of_the_aggregate_counts_as_a_fetch(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks for one model, or for the head alone, has not seen the aggregate."""
    fetched: list[str] = []
    monkeypatch.setattr(site.reporter, "aggregate_fetched", lambda: fetched.append("fetch"))
    site.get("/api/v1/timing?model_id=m")
    site.get("/api/v1/timing", "HEAD")
    site.get("/healthz")
    assert fetched == []
    site.get("/api/v1/timing")
    site.get("/api/v1/timing?model_id=*")
    assert len(fetched) == 2


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (b"", (None, False)),
        (b"model_id=a%2Bb+c", ("a+b c", False)),
        (b"model_id=%C3%BC%0A%22%3Cscript%3E", ('\u00fc\n"<script>', False)),
        (b"model_id=*&reset=1", ("*", True)),
        (b"reset=True", (None, True)),
        (b"reset=FALSE", (None, False)),
        (b"reset=0", (None, False)),
        (b"model_id=" + b"x" * 256, ("x" * 256, False)),
    ],
)
def test_queries_that_are_understood(query: bytes, expected: tuple[str | None, bool]) -> None:
    """The model and whether its interval ends."""
    assert parse_timing_query(query)[:2] == expected


@pytest.mark.parametrize(
    ("query", "code", "says"),
    [
        (b"model=a", "unknown_parameter", "model_id, reset, reader, ack"),
        (b"Reset=true", "unknown_parameter", "there are model_id, reset"),
        (b"reader=a%20b", "bad_reader", "A-Z, a-z, 0-9"),
        (b"reader=a&ack=b", "bad_ack", "interval.cursor"),
        (b"model_id=a&model_id=a", "repeated_parameter", "model_id"),
        (b"reset=1&reset=1", "repeated_parameter", "reset"),
        (b"model_id=", "bad_model_id", "empty"),
        (b"model_id=" + b"x" * 257, "bad_model_id", "257 characters; allowed are up to 256"),
        (b"reset=", "bad_reset", "true, false, 1 and 0"),
        (b"reset", "bad_reset", "true, false, 1 and 0"),
        (b"reset=yes", "bad_reset", "true, false, 1 and 0"),
        (b"model_id=%zz", "bad_query", "percent-encoded"),
        (b"model_id=a%", "bad_query", "percent-encoded"),
        (b"model_id=%FF", "bad_query", "UTF-8"),
        (b"model_id=\xff", "bad_query", "UTF-8"),
        (b"&".join([b"a=b"] * 17), "bad_query", "16 parameters"),
    ],
)
def test_queries_that_are_refused(query: bytes, code: str, says: str) -> None:
    """Anything that is not exactly a model or a reset is an error that says what would be."""
    with pytest.raises(BadRequestError) as caught:
        parse_timing_query(query)
    assert caught.value.code == code
    assert says in str(caught.value)


def test_document_is_served_and_consistent(site: Site) -> None:
    """It names this release, and every reference in it leads somewhere."""
    served = site.get("/openapi.json").json()
    assert served == document(served["info"]["version"])
    assert served["openapi"] == "3.1.0"
    assert set(served["paths"]) == {
        "/api/v1/overview",
        "/api/v1/timing",
        "/metrics",
        "/healthz",
        "/openapi.json",
    }

    def references(value: object) -> list[str]:
        if isinstance(value, dict):
            found = [value["$ref"]] if "$ref" in value else []
            return found + [name for item in value.values() for name in references(item)]
        if isinstance(value, list):
            return [name for item in value for name in references(item)]
        return []

    names = {name.removeprefix("#/components/schemas/") for name in references(served)}
    assert names == set(served["components"]["schemas"])
    for schema in served["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:9411", 200),
        ("127.0.0.1", 200),
        ("[::1]:9411", 200),
        ("localhost:9411", 200),
        ("LOCALHOST", 200),
        ("10.0.0.1:9411", 403),
        ("attacker.example:9411", 403),
        ("127.0.0.1.attacker.example", 403),
        ("localhost.attacker.example", 403),
        ("", 403),
        ("[::1]attacker.example", 403),
        ("[::1", 403),
        ("::1", 403),
        ("[127.0.0.1]", 403),
        ("[localhost]", 403),
        ("127.0.0.1:80@attacker.example", 403),
        ("localhost@attacker.example", 403),
        ("127.0.0.1:9411, attacker.example", 403),
        ("localhost.", 403),
        ("2130706433", 403),
        ("127.1", 403),
    ],
)
def test_pages_of_other_hosts_get_no_figures(host: str, status: int) -> None:
    """Without a token, a name that a web page lets resolve to this machine reads nothing and
    ends no interval; probes may use any name."""
    site = Site()
    feed = Feed(site.core)
    feed(span(["m"], 0.0, 1.0))

    async def act(client: httpx.AsyncClient) -> None:
        headers = {"host": host}
        answer = await client.get("/api/v1/timing?model_id=m&reset=true", headers=headers)
        assert answer.status_code == status
        if status == 403:
            assert answer.json()["error"] == "foreign_host"
        assert (await client.get("/healthz", headers=headers)).status_code == 200

    site.visit(act)
    assert bool(feed.timing("m").phases) == (status == 403)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"sec-fetch-site": "none", "sec-fetch-mode": "navigate"}, 200),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"sec-fetch-site": "same-origin", "origin": "http://127.0.0.1:9411"}, 200),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": ""}, 403),
        ({"sec-fetch-site": "cross-site", "origin": "http://attacker.example"}, 403),
        ({"origin": "http://attacker.example"}, 403),
        ({"origin": "http://127.0.0.1:8000"}, 403),
        ({"origin": "https://127.0.0.1:9411"}, 403),
        ({"origin": "http://localhost:9411"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": ""}, 403),
    ],
)
@pytest.mark.parametrize("method", ["GET", "OPTIONS"])
def test_pages_of_other_servers_end_no_interval(
    headers: dict[str, str], status: int, method: str
) -> None:
    """A browser asks this machine in the name of any page that wants it to, and tells whose page
    that is; without a token, only the sidecar's own pages are answered, programs, and whoever
    types the address. The connection ends with the refusal."""
    site = Site()
    feed = Feed(site.core)
    feed(span(["m"], 0.0, 1.0))

    async def act(client: httpx.AsyncClient) -> None:
        path = "/api/v1/timing?model_id=m&reset=true"
        answer = await client.request(method, path, headers=headers)
        assert answer.status_code == (405 if (method, status) == ("OPTIONS", 200) else status)
        assert not any(name.startswith("access-control") for name in answer.headers)
        if status == 403:
            assert check("Error", answer)["error"] == "foreign_page"
            assert answer.headers["connection"] == "close"
        assert (await client.get("/healthz", headers=headers)).status_code == 200

    site.visit(act)
    assert bool(feed.timing("m").phases) == (status == 403 or method == "OPTIONS")
