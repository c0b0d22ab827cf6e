"""Requests of tenants, passed on to the trainer that has their model."""

from __future__ import annotations

from typing import Any, Final

import httpx
from starlette.responses import Response

from ..web import Problem
from .fleet import Trainer

TIMEOUT: Final = 30.0
"""Seconds for an answer; a trainer holds a poll open for at most 20."""


class Relay:
    """Speaks to all trainers through ``client``, which it does not close."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def send(
        self,
        trainer: Trainer,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: dict[str, str] | None = None,
    ) -> Response:
        """The trainer's answer, as it is. Raises `Problem` when there is none."""
        try:
            answer = await self._client.request(
                method,
                trainer.url + path,
                json=body,
                params=params,
                headers={"Authorization": f"Bearer {trainer.token}"},
                timeout=TIMEOUT,
            )
        except httpx.TimeoutException as error:
            raise Problem(504, "trainer_slow", "the trainer did not answer in time") from error
        except httpx.HTTPError as error:
            raise Problem(503, "trainer_unreachable", "the trainer is not reachable") from error
        return Response(
            answer.content,
            status_code=answer.status_code,
            media_type=answer.headers.get("content-type"),
        )
