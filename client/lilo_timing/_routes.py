"""The timing route of a control plane. The one module that needs starlette, once called."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ._clients import ClientOfEventLoop
from ._endpoint import SidecarEndpoint
from ._http import TIMING_PATH, quoted
from ._query import RefusedQueryError, relayed_query
from ._relay import RELAY_TIMEOUT, RelayError, relay

if TYPE_CHECKING:
    import httpx
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

EngineFor = Callable[[str], Awaitable[SidecarEndpoint | None]]


def timing_routes(
    engine_for: EngineFor, *, client: httpx.AsyncClient | None = None
) -> list[BaseRoute]:
    """``GET /api/v1/timing?model_id=M&reset=true``, to be mounted in Starlette or FastAPI:
    relays the answer of the sidecar that ``await engine_for(model_id)`` names.

    ``engine_for`` raises LookupError, or returns None, for a model that does not exist. Who may
    read which model is the control plane's to decide, in front of these routes.

    | status   | when                                                                     |
    |----------|--------------------------------------------------------------------------|
    | 400      | no ``model_id``, or a query that makes no sense here or to the sidecar   |
    | 403      | ``model_id=*``: all models together are the operator's                   |
    | 404      | ``engine_for`` knows no such model                                       |
    | 502      | the sidecar's answer is over 1 MiB, no JSON object, or a refusal of our token |
    | 503, 504 | the sidecar cannot be reached, or takes longer than 5 s                  |

    All as ``{"error", "message"}``, and never from a cache; other 4xx answers of the sidecar are
    relayed as they are. HEAD resets nothing. Connections are reused and, routes having no
    lifespan, closed at the end of the event loop; pass a ``client`` of your own to close them
    earlier. It should have ``trust_env=False`` and no headers of its own.
    """
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    never_stored = {"Cache-Control": "no-store"}
    own_client = ClientOfEventLoop()

    def refusal(status: int, code: str, message: str) -> Response:
        return JSONResponse({"error": code, "message": message}, status, headers=never_stored)

    async def timing(request: Request) -> Response:
        try:
            params = relayed_query(request.scope["query_string"])
            endpoint = await _endpoint_of(engine_for, params["model_id"])
            relayed = await relay(
                client or await own_client.get(), endpoint, request.method, params, RELAY_TIMEOUT
            )
        except (RefusedQueryError, RelayError) as error:
            return refusal(error.status, error.code, str(error))
        return Response(relayed.body, relayed.status, never_stored, "application/json")

    return [Route(TIMING_PATH, timing, methods=["GET"])]


async def _endpoint_of(engine_for: EngineFor, model_id: str) -> SidecarEndpoint:
    try:
        endpoint = await engine_for(model_id)
    except LookupError:
        endpoint = None
    if endpoint is None:
        raise RelayError(404, "unknown_model", f"there is no model '{quoted(model_id)}'")
    return endpoint
