"""The queries that a control plane's timing route passes on, and those it does not."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from lilo_timing._http import MAX_MODEL_ID
from lilo_timing._query import RELAYED_PARAMETERS
from support.control_plane import ask, refused
from support.timing_server import TimingServer, error


@pytest.mark.parametrize(
    ("query", "outcome"),
    [
        ("", (400, "model_id_required")),
        ("reset=true", (400, "model_id_required")),
        ("model_id=", (400, "model_id_required")),
        ("model_id=*", (403, "operators_only")),
        ("model_id=%2A", (403, "operators_only")),
        ("model_id=m&rest=true", (400, "unknown_parameter")),
        ("model_id=m&model_id=other", (400, "repeated_parameter")),
        ("model_id=m&reset=true&reset=false", (400, "repeated_parameter")),
        ("model_id=%ff", (400, "bad_query")),
        ("&".join(["model_id=m"] * 17), (400, "bad_query")),
        (f"model_id={'x' * (MAX_MODEL_ID + 1)}", (400, "bad_model_id")),
        ("model_id=unknown", (404, "unknown_model")),
        (f"model_id={'x' * MAX_MODEL_ID}", (404, "unknown_model")),
        ("model_id=gone", (404, "unknown_model")),
    ],
)
def test_a_query_that_makes_no_sense_is_refused_before_any_sidecar(
    backend: str, server: TimingServer, query: str, outcome: tuple[int, str]
) -> None:
    """In JSON, with a code; the figures of all models are nobody's here; a model is unknown
    whether `engine_for` raises LookupError or returns None."""
    assert refused(ask(backend, server.url, query)) == outcome
    assert server.requests == []


def test_the_refusal_of_the_aggregate_says_whose_it_is(backend: str, server: TimingServer) -> None:
    """And what to ask instead."""
    for query in ("", "model_id=*"):
        message = ask(backend, server.url, query).json()["message"]
        assert "the operator's" in message
        assert "ask for one model" in message


def test_all_the_sidecars_parameters_are_relayed(backend: str, server: TimingServer) -> None:
    """Whether it knows them all is its own answer, and so are their values."""
    given = {"model_id": "m", "reset": "maybe", "reader": "r 1", "ack": "7"}
    assert set(given) == set(RELAYED_PARAMETERS)
    server.answering = lambda _: error(400, "bad_reset", "reset is 'maybe'")
    query = "&".join(f"{name}={quote(value)}" for name, value in given.items())
    response = ask(backend, server.url, query)
    assert refused(response) == (400, "bad_reset")
    assert server.requests[0].query == given
