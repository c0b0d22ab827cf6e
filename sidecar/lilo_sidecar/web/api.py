"""The HTTP interface: `/api/v1/timing`, `/api/v1/overview`, `/metrics`, `/healthz`,
`/openapi.json`, and the page at `/`."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from dataclasses import asdict

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from ..core.timing import AGGREGATE
from ..intake.ingest import Ingest
from ..reporter import Reporter
from ..state.recorder import Recorder
from .answers import (
    BadRequestError,
    json_answer,
    json_text_answer,
    on_bad_request,
    on_fault,
    on_http_exception,
)
from .assets import routes
from .bearer import BearerToken
from .hosts import LoopbackHosts
from .metric_families import Moment
from .metrics import Metrics
from .openapi import document
from .overview import Overview
from .query import parse_overview_query, parse_timing_query
from .server import HttpServer


class Api:
    """Answers from the core. Every handler runs on the daemon's one thread, without a pause
    between reading the core and resetting it, so an answer is one consistent moment."""

    def __init__(
        self,
        core: Recorder,
        ingest: Ingest,
        reporter: Reporter,
        clock: Callable[[], float],
    ) -> None:
        self._core = core
        self._ingest = ingest
        self._reporter = reporter
        self._clock = clock
        self._server: HttpServer | None = None
        self._started = clock()
        self._version = _version()
        self._metrics = Metrics(self._moment)
        self.overview = Overview(core, clock, self._version, self._room)

    def served_by(self, server: HttpServer) -> None:
        """`/healthz` and `/metrics` tell of that server from now on."""
        self._server = server

    def app(self, token: str | None) -> ASGIApp:
        """The ASGI application; with a token, nothing but `/healthz` and the page's
        files is answered without it."""
        app = Starlette(
            routes=[
                Route("/api/v1/timing", self._timing, methods=["GET"]),
                Route("/api/v1/overview", self._overview, methods=["GET"]),
                Route("/metrics", self._metrics.answer, methods=["GET"]),
                Route("/healthz", self._healthz, methods=["GET"]),
                Route("/openapi.json", self._openapi, methods=["GET"]),
                *routes(),
            ],
            exception_handlers={
                BadRequestError: on_bad_request,
                HTTPException: on_http_exception,
                Exception: on_fault,
            },
        )
        app.router.redirect_slashes = False  # a path that is not there is a 404, in JSON
        return LoopbackHosts(app) if token is None else BearerToken(app, token)

    async def _timing(self, request: Request) -> Response:
        query = parse_timing_query(request.scope["query_string"])
        fetched = request.method == "GET"
        if not fetched:  # HEAD asks what GET would say; nobody gets to see an interval by it
            query = query._replace(reset=False, ack=None)
        timing = self._core.timing(query)
        if fetched and timing.model_id == AGGREGATE:
            self._reporter.aggregate_fetched()
        return json_answer({**timing.to_json(), "journal": self._core.status._asdict()})

    async def _overview(self, request: Request) -> Response:
        after = parse_overview_query(request.scope["query_string"])
        return json_text_answer(await self.overview.answer(after))

    async def _healthz(self, request: Request) -> Response:
        now = self._clock()
        health = self._core.health()
        return json_answer(
            {
                "status": "waiting" if health.last_heard is None else "ok",
                **health.to_json(now),
                "producers": health.producers,
                "uptime_s": round(max(0.0, now - self._started), 6),
                "version": self._version,
                "journal": self._core.status._asdict(),
                "faults": health.faults,
                "ingest": asdict(self._ingest.statistics()),
                "http": None if self._server is None else asdict(self._server.statistics()),
            }
        )

    async def _room(self) -> None:
        if self._server is not None:
            await self._server.untaken.room()

    def _moment(self) -> Moment:
        return Moment(
            self._core.totals(),
            self._core.health(),
            self._core.status,
            self._ingest.statistics(),
            None if self._server is None else self._server.statistics(),
            self._version,
        )

    async def _openapi(self, request: Request) -> Response:
        return json_answer(document(self._version))


def _version() -> str:
    try:
        return importlib.metadata.version("lilo-timing")
    except importlib.metadata.PackageNotFoundError:  # run from a tree that is not installed
        return "0+unknown"
