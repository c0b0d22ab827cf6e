"""A client of the control plane's training operations."""

from __future__ import annotations

import time
from typing import Any, Final

import httpx

WAIT: Final = 15.0
"""Seconds that one poll waits for a result at the server."""
ATTEMPTS: Final = 5
"""Of a request whose answer does not arrive. A command is submitted again under its own sequence
id, so it never runs twice."""


class OperationFailedError(Exception):
    """The control plane, the trainer or its backend refused; the message says why."""


class TrainingClient:
    """One model of one tenant. Commands run in the order they are submitted in. One thread."""

    def __init__(self, base_url: str, api_key: str) -> None:
        self._http = httpx.Client(
            base_url=base_url, headers={"X-API-Key": api_key}, timeout=WAIT + 15.0
        )
        self._submitted = 0
        self.model_id = ""

    def create_model(self) -> str:
        """A fresh adapter; returns when it takes commands."""
        created = self._request("POST", "/api/v1/models", {})
        self.model_id = created["model_id"]
        self.result(created["request_id"])
        return self.model_id

    def submit(self, kind: str, payload: dict[str, Any]) -> str:
        """Queue a command; the request id to ask `result` for."""
        self._submitted += 1
        body = {"seq_id": self._submitted, "kind": kind, "payload": payload}
        path = f"/api/v1/models/{self.model_id}/operations"
        return str(self._request("POST", path, body)["request_id"])

    def result(self, request_id: str) -> dict[str, Any]:
        """Wait for the command's result. Raises `OperationFailedError`."""
        while True:
            answer = self._request("GET", f"/api/v1/futures/{request_id}?wait={WAIT}")
            if answer["state"] == "done":
                result: dict[str, Any] = answer["result"]
                return result
            if answer["state"] == "failed":
                raise OperationFailedError(f"{request_id}: {answer['error']}")

    def run(self, kind: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Submit a command and wait for its result."""
        return self.result(self.submit(kind, payload))

    def unload(self) -> None:
        """Let go of the model."""
        self._request("DELETE", f"/api/v1/models/{self.model_id}")

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _request(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        for attempt in range(ATTEMPTS):
            try:
                answer = self._http.request(method, path, json=body)
                break
            except httpx.TransportError as error:
                # Creating a model twice would leave one behind.
                if attempt == ATTEMPTS - 1 or path.endswith("/models"):
                    raise OperationFailedError(
                        f"the control plane at {self._http.base_url} does not answer: {error!r}"
                    ) from error
                time.sleep(0.1 * 2**attempt)
        if answer.is_error:
            raise OperationFailedError(f"{method} {path}: {answer.status_code} {answer.text}")
        return answer.json() if answer.content else None
