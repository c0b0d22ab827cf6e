"""The HTTP surface of a real sidecar, fuzzed from its own OpenAPI document."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, assume, given, settings
from schemathesis import Case, GenerationMode

from lilo_engine_hook import wire
from support.feed import begin, finish, span
from support.producer import Producer
from support.sidecar import SidecarProcess, start_sidecar
from support.soak import rounds

EXAMPLES = rounds(150, soak=20_000)
MAX_GROWTH = 16 * 1024 * 1024
"""Bytes of resident memory over all examples; the readers of a few models are a few kilobytes."""
OPERATIONS = ("/api/v1/timing", "/api/v1/overview", "/metrics", "/healthz", "/openapi.json")


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    """One that has heard of a model, with something of everything in its answers."""
    with start_sidecar(tmp_path_factory.mktemp("fuzz")) as process:
        with Producer(process.socket) as producer:
            producer.greet()
            producer.send(
                wire.Register(1.0, "m"),
                span(["m"], 2.0, 3.0, "accept"),
                begin("m", 1, 4.0),
                span(["m"], 5.0, 6.0, ids=["m:1"]),
                finish("m", 1, 7.0),
            )
            yield process
            assert process.process.poll() is None
            answer = process.timing("m")
            assert answer["phases"]["forward_backward.execute"]["count"] >= 0
        assert process.stop() == 0
        assert not [line for line in process.log.rest() if "Traceback" in line]


@pytest.mark.parametrize(
    ("path", "mode"),
    [
        *((path, GenerationMode.POSITIVE) for path in OPERATIONS),
        ("/api/v1/timing", GenerationMode.NEGATIVE),
        ("/api/v1/overview", GenerationMode.NEGATIVE),  # the others have no parameters
    ],
)
def test_every_request_is_answered_as_documented(
    sidecar: SidecarProcess, path: str, mode: GenerationMode
) -> None:
    """Good requests and bad ones: the status, the headers and the body are the document's, never
    a 5xx; a bad request is never taken for a good one."""
    schema = schemathesis.openapi.from_url(f"{sidecar.url}/openapi.json")
    operation = schema[path]["GET"]
    before = sidecar.rss_bytes()

    @settings(
        max_examples=EXAMPLES,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case: Case[Any]) -> None:
        query = case.query or {}
        # That ack needs reader beside it, the document can say in words only.
        assume(mode is GenerationMode.NEGATIVE or "ack" not in query or "reader" in query)
        case.call_and_validate(base_url=sidecar.url)

    check()
    assert sidecar.rss_bytes() - before < MAX_GROWTH


def test_any_bytes_on_the_port_cost_only_their_connection(sidecar: SidecarProcess) -> None:
    """Requests that are changed, cut and repeated at random, and plain noise."""
    random = Random(0)
    whole = (
        b"GET /api/v1/timing?model_id=m&reader=a&reset=true HTTP/1.1\r\n"
        b"Host: 127.0.0.1\r\nAccept: */*\r\n\r\n"
    )
    address = (sidecar.http.base_url.host, sidecar.http.base_url.port)
    before = sidecar.rss_bytes()
    for _ in range(rounds(300, soak=30_000)):
        data = bytearray(whole * random.randrange(1, 4))
        for _ in range(random.randrange(8)):
            data[random.randrange(len(data))] = random.randrange(256)
        if random.randrange(4) == 0:
            data = bytearray(random.randbytes(random.randrange(1, 400)))
        with socket.create_connection(address, timeout=20) as connection:
            connection.sendall(data[: random.randrange(1, len(data) + 1)])
            connection.shutdown(socket.SHUT_WR)
            answer = b""
            while chunk := connection.recv(65536):
                answer += chunk
        statuses = [line for line in answer.split(b"\r\n") if line.startswith(b"HTTP/1.")]
        assert not [status for status in statuses if status.split(b" ")[1].startswith(b"5")]
    assert sidecar.health()["status"] == "ok"
    assert sidecar.rss_bytes() - before < MAX_GROWTH


def test_fuzz_is_the_one_of_the_document() -> None:
    """Every path that is served is fuzzed."""
    from lilo_sidecar.web.openapi import document

    assert set(OPERATIONS) == set(document("1")["paths"])
