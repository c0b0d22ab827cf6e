"""The engine's view of the backend process, and the client that speaks HTTP to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

import httpx

from .operations import Limits, Operation

OPERATION_TIMEOUT: Final = 120.0
"""Seconds for one backend operation; the largest takes a few. After it the lane goes on."""


class BackendFailureError(Exception):
    """The backend refused or could not be reached; the message goes to the client."""


class Backend(Protocol):
    """Each method raises `BackendFailureError`."""

    async def create(self, model_id: str) -> None: ...
    async def run(self, batch: Sequence[Operation]) -> list[dict[str, Any]]:
        """Commands of one kind, several of them only if it is ``forward_backward``; a result for
        each."""
        ...

    async def capture(self, operation: Operation) -> str:
        """Copy the weights; the name of the copy."""
        ...

    async def persist(self, operation: Operation, capture: str) -> dict[str, Any]:
        """Write the copy; the command's result."""
        ...

    async def delete(self, model_id: str) -> None: ...


class HttpBackend:
    """A backend behind ``client``, whose base URL is the backend's. Does not close it."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def limits(self) -> Limits:
        """Ask ``/healthz``; answers as soon as the model is there."""
        model = (await self._request("GET", "/healthz"))["model"]
        return Limits(vocabulary=model["vocabulary"], context=model["context"])

    async def create(self, model_id: str) -> None:
        await self._post("/create", {"adapter": model_id})

    async def run(self, batch: Sequence[Operation]) -> list[dict[str, Any]]:
        kind = batch[0].kind.value
        if kind == "optim_step":
            (operation,) = batch
            parameters = operation.payload.get("adam_params", {})
            body = {"adapter": operation.model_id, "adam_params": parameters}
            return [await self._post("/optim_step", body)]
        commands = [
            {"adapter": operation.model_id, "sequences": _sequences(operation)}
            for operation in batch
        ]
        results: list[dict[str, Any]] = (await self._post(f"/{kind}", {"commands": commands}))[
            "results"
        ]
        return results

    async def capture(self, operation: Operation) -> str:
        body = {"adapter": operation.model_id, "kind": operation.kind.value}
        return str((await self._post("/capture", body))["capture"])

    async def persist(self, operation: Operation, capture: str) -> dict[str, Any]:
        lane = operation.persistence_lane
        path = f"{operation.model_id}/{lane}/{operation.payload['name']}.pt"
        answer = await self._post("/persist", {"capture": capture, "path": path})
        return {"path": f"lilo://{path}", "bytes": answer["bytes"]}

    async def delete(self, model_id: str) -> None:
        await self._post("/delete", {"adapter": model_id})

    async def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return await self._request("POST", path, body)

    async def _request(
        self, method: str, path: str, body: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        try:
            response = await self._client.request(
                method, path, json=body, timeout=OPERATION_TIMEOUT
            )
            answer: dict[str, Any] = response.json()
        except (httpx.HTTPError, ValueError) as error:
            raise BackendFailureError(
                f"the backend did not answer ({type(error).__name__}); the trainer's log says more"
            ) from error
        if response.is_error:
            raise BackendFailureError(str(answer.get("message", "the backend failed")))
        return answer


def _sequences(operation: Operation) -> list[dict[str, Any]]:
    return [
        {
            "tokens": datum["model_input"]["tokens"],
            "targets": datum["loss_fn_inputs"]["target_tokens"],
        }
        for datum in operation.payload["data"]
    ]
