"""The HTTP interface over a core, for tests: without a daemon, and with a clock of their own."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping

import httpx
import trio

from lilo_sidecar.api import Api
from lilo_sidecar.critical_path import CriticalPath
from lilo_sidecar.ingest import Ingest
from lilo_sidecar.output import LineWriter
from lilo_sidecar.recorder import Recorder
from lilo_sidecar.reporter import Reporter


class Site:
    """The interface over a core, without a daemon."""

    def __init__(self, token: str | None = None) -> None:
        self.now = 100.0
        self.core = CriticalPath()
        recorder = Recorder(self.core, None, self.clock)
        ingest = Ingest(recorder, lambda timing: None)
        lines = LineWriter(os.open(os.devnull, os.O_WRONLY))
        self.reporter = Reporter(recorder, lines)
        self.app = Api(recorder, ingest, self.reporter, self.clock).app(token)
        lines.close(10)

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
