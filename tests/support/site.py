"""The HTTP interface over a core, without a daemon, and that answers are as documented."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import httpx
import jsonschema
import trio

from lilo_engine_hook import wire
from lilo_sidecar.core.critical_path import CriticalPath
from lilo_sidecar.intake.ingest import Ingest
from lilo_sidecar.output import LineWriter
from lilo_sidecar.reporter import Reporter
from lilo_sidecar.state.recorder import Recorder
from lilo_sidecar.web.api import Api
from lilo_sidecar.web.openapi import document
from support.feed import Feed, begin, finish, hello, span


class Site:
    """The interface over a core, without a daemon."""

    def __init__(self, token: str | None = None) -> None:
        self.now = 100.0
        self.core = CriticalPath()
        self.recorder = Recorder(self.core, None, self.clock)
        ingest = Ingest(self.recorder, lambda timing: None)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        lines = LineWriter(nowhere)
        self.reporter = Reporter(self.recorder, lines)
        self.api = Api(self.recorder, ingest, self.reporter, self.clock)
        self.app = self.api.app(token)
        lines.close(10)
        os.close(nowhere)

    def clock(self) -> float:
        return self.now

    def visit(self, act: Callable[[httpx.AsyncClient], Awaitable[None]]) -> None:
        """Run ``act`` with a client."""

        async def main() -> None:
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://127.0.0.1:9411"
            ) as client:
                await act(client)

        trio.run(main)

    def get(
        self, path: str, method: str = "GET", headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        """One request."""
        answers: list[httpx.Response] = []

        async def act(client: httpx.AsyncClient) -> None:
            answers.append(await client.request(method, path, headers=headers))

        self.visit(act)
        return answers[0]


def busy(site: Site) -> Feed:
    """A trainer whose answers have something of everything in them."""
    feed = Feed(site.core, hello(started=1.0))
    feed(
        wire.Register(2.0, "m"),
        span(["m"], 3.0, 4.0, "accept"),
        wire.Gauge(2.0, "backend_ready"),
        begin("m", 1, 5.0),
        begin("n", 1, 5.0),
        span(["m", "n"], 6.0, 8.0, ids=["m:1", "n:1"], n=2),
        finish("m", 1, 8.5),
        begin("m", 2, 9.0),
        wire.State(10.0, ("m",), "executing:forward_backward"),
    )
    return feed


def check(schema: str, answer: httpx.Response) -> dict[str, Any]:
    """The JSON of an answer, which must be as the document has it, with nothing undocumented."""
    content = answer.json()
    components = document("1")["components"]
    jsonschema.Draft202012Validator(
        {"$ref": f"#/components/schemas/{schema}", "components": components}
    ).validate(content)
    assert set(content) == set(components["schemas"][schema]["properties"])
    return dict(content)
