"""The control plane's routes."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from lilo_timing import timing_routes

from ..web import Problem, error_handlers, json_object, problem_response
from .callers import ApiKeys, Caller, caller_of
from .fleet import Fleet, Placement
from .relay import Relay


class OwnModelsOnly:
    """Middleware in front of the timing routes, which know models but no callers: a model that is
    not the caller's is as unknown as one that does not exist."""

    def __init__(self, app: ASGIApp, fleet: Fleet) -> None:
        self._app = app
        self._fleet = fleet

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        caller = caller_of(request)
        for model_id in request.query_params.getlist("model_id"):
            if not caller.may_see(self._fleet.owner_of(model_id)):
                await problem_response(_unknown(model_id))(scope, receive, send)
                return
        await self._app(scope, receive, send)


def control_plane_app(fleet: Fleet, relay: Relay, callers: Mapping[str, Caller]) -> Starlette:
    """For tenants: ``POST`` and ``GET /api/v1/models``, ``DELETE /api/v1/models/ID``,
    ``POST /api/v1/models/ID/operations``, ``GET /api/v1/futures/REQUEST_ID``,
    ``GET /api/v1/timing``. For the operator: ``GET /api/v1/trainers``."""

    async def create(request: Request) -> Response:
        body = await json_object(request)
        placement = fleet.place(caller_of(request).tenant)
        try:
            answer = await relay.send(
                placement.trainer,
                "POST",
                "/models",
                body={"model_id": placement.model_id, "spec": body},
            )
        except Problem:
            fleet.remove(placement.model_id)
            raise
        if answer.status_code >= 400:
            fleet.remove(placement.model_id)
            return answer
        created = {"model_id": placement.model_id, "request_id": f"{placement.model_id}:0"}
        return JSONResponse(created, status_code=202)

    async def models(request: Request) -> Response:
        return JSONResponse({"models": fleet.models_of(caller_of(request).tenant)})

    async def unload(request: Request) -> Response:
        placement = own(request, request.path_params["model_id"])
        path = f"/models/{placement.model_id}"
        answer = await relay.send(placement.trainer, "DELETE", path)
        if answer.status_code in (204, 404):
            fleet.remove(placement.model_id)
        return answer

    async def submit(request: Request) -> Response:
        placement = own(request, request.path_params["model_id"])
        path = f"/models/{placement.model_id}/operations"
        body = await json_object(request)
        return await relay.send(placement.trainer, "POST", path, body=body)

    async def poll(request: Request) -> Response:
        request_id = request.path_params["request_id"]
        placement = own(request, request_id.rpartition(":")[0])
        params = {"wait": request.query_params.get("wait", "0")}
        path = f"/futures/{request_id}"
        return await relay.send(placement.trainer, "GET", path, params=params)

    async def trainers(request: Request) -> Response:
        if not caller_of(request).operator:
            raise Problem(403, "operators_only", "this needs the operator's API key")
        return JSONResponse({"trainers": fleet.listing()})

    async def healthz(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    def own(request: Request, model_id: str) -> Placement:
        placement = fleet.find(model_id)
        if placement is None or not caller_of(request).may_see(placement.owner):
            raise _unknown(model_id)
        return placement

    return Starlette(
        routes=[
            Route("/healthz", healthz),
            Route("/api/v1/models", create, methods=["POST"]),
            Route("/api/v1/models", models, methods=["GET"]),
            Route("/api/v1/models/{model_id}", unload, methods=["DELETE"]),
            Route("/api/v1/models/{model_id}/operations", submit, methods=["POST"]),
            Route("/api/v1/futures/{request_id}", poll),
            Route("/api/v1/trainers", trainers),
            Mount(
                "/",
                routes=timing_routes(fleet.engine_for),
                middleware=[Middleware(OwnModelsOnly, fleet=fleet)],
            ),
        ],
        middleware=[Middleware(ApiKeys, callers=callers)],
        exception_handlers=error_handlers(),
    )


def _unknown(model_id: str) -> Problem:
    return Problem(404, "unknown_model", f"there is no model {model_id}")
