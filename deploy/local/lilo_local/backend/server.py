"""The backend's HTTP interface. The trainer's engine is its one client."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar

import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from lilo_engine_hook.device import DeviceTimer

from ..web import Problem, error_handlers, json_object
from .adapters import AdamParameters, AdapterHost, BackendError
from .captures import Captures
from .sequences import TrainingSequence, Work

T = TypeVar("T")


class Backend:
    """Lets one operation at a time at the model, and writes captured weights beside it. ``timer``
    measures each of them on the device, if there is one."""

    def __init__(
        self, host: AdapterHost, directory: Path, timer: DeviceTimer | None = None
    ) -> None:
        self._host = host
        self._timer = timer
        self._captures = Captures(host, directory)
        self._model_free = trio.Lock()

    def app(self) -> Starlette:
        """``POST /<operation>`` with a JSON body, and ``GET /healthz``."""
        operations = {
            "create": self.create,
            "forward_backward": self.forward_backward,
            "forward": self.forward,
            "optim_step": self.optim_step,
            "capture": self.capture,
            "persist": self.persist,
            "delete": self.delete,
        }
        routes = [
            Route(f"/{name}", _endpoint(operation), methods=["POST"])
            for name, operation in operations.items()
        ]
        routes.append(Route("/healthz", self.healthz))
        return Starlette(routes=routes, exception_handlers=error_handlers())

    async def healthz(self, _: Request) -> JSONResponse:
        shape = self._host.shape
        model = {"vocabulary": shape.vocabulary, "context": shape.context, "slots": shape.slots}
        return JSONResponse({"status": "ok", "model": model})

    async def create(self, body: dict[str, Any]) -> dict[str, Any]:
        await self._at_model("accept", [body["adapter"]], self._host.create, body["adapter"])
        return {}

    async def forward_backward(self, body: dict[str, Any]) -> dict[str, Any]:
        results = await self._batch("forward_backward", self._host.forward_backward, body)
        return {"results": [{"loss": r.loss, "tokens": r.tokens} for r in results]}

    async def forward(self, body: dict[str, Any]) -> dict[str, Any]:
        results = await self._batch("forward", self._host.forward, body)
        return {"results": [{"loss": r.loss, "tokens": r.tokens} for r in results]}

    async def optim_step(self, body: dict[str, Any]) -> dict[str, Any]:
        parameters = AdamParameters.of(body["adam_params"])
        adapter = body["adapter"]
        steps = await self._at_model(
            "optim_step", [adapter], self._host.optim_step, adapter, parameters
        )
        return {"step": steps}

    async def capture(self, body: dict[str, Any]) -> dict[str, Any]:
        adapter, kind = body["adapter"], body["kind"]
        name = await self._at_model(kind, [adapter], self._captures.capture, adapter, kind)
        return {"capture": name}

    async def persist(self, body: dict[str, Any]) -> dict[str, Any]:
        size = await trio.to_thread.run_sync(self._captures.persist, body["capture"], body["path"])
        return {"bytes": size}

    async def delete(self, body: dict[str, Any]) -> dict[str, Any]:
        async with self._model_free:
            await trio.to_thread.run_sync(self._host.delete, body["adapter"])
        return {}

    async def _batch(
        self, kind: str, operation: Callable[[list[Work]], list[T]], body: dict[str, Any]
    ) -> list[T]:
        work = _commands(body["commands"])
        return await self._at_model(kind, [each.adapter for each in work], operation, work)

    async def _at_model(
        self, kind: str, adapters: list[str], operation: Callable[..., T], *arguments: Any
    ) -> T:
        def timed() -> T:
            with self._timer.span(adapters, kind) if self._timer else nullcontext():
                return operation(*arguments)

        async with self._model_free:
            return await trio.to_thread.run_sync(timed)


def _endpoint(operation: Callable[[dict[str, Any]], Any]) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> JSONResponse:
        try:
            return JSONResponse(await operation(await json_object(request)))
        except KeyError as error:
            raise Problem(400, "bad_request", f"the body lacks {error}") from error
        except BackendError as error:
            raise Problem(409, "refused", str(error)) from error

    return endpoint


def _commands(commands: list[dict[str, Any]]) -> list[Work]:
    return [
        Work(
            command["adapter"],
            [TrainingSequence(each["tokens"], each["targets"]) for each in command["sequences"]],
        )
        for command in commands
    ]
