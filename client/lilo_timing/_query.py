"""The query of a control plane's timing route, before it is passed on. Pure."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl

from ._http import MAX_MODEL_ID, quoted

RELAYED_PARAMETERS: Final = ("model_id", "reset", "reader", "ack")
"""What a caller may pass on to the sidecar, which judges the values (and the names, too: an
older one does not know them all). Others are refused here: a sidecar may learn parameters that
are for its operator."""
AGGREGATE: Final = "*"
"""What a sidecar calls all models together."""
_MAX_PARAMETERS: Final = 16
"""More than there are; so that a query of thousands is not taken apart."""


class RefusedQueryError(Exception):
    """Answered with ``status``, ``code`` and the message."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def relayed_query(query: bytes) -> dict[str, str]:
    """The parameters to pass on, ``model_id`` among them. Raises `RefusedQueryError`."""
    try:
        pairs = parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=_MAX_PARAMETERS,
        )
    except ValueError:
        raise RefusedQueryError(
            400,
            "bad_query",
            f"the query is not up to {_MAX_PARAMETERS} parameters of percent-encoded UTF-8",
        ) from None
    given: dict[str, str] = {}
    for name, value in pairs:
        if name not in RELAYED_PARAMETERS:
            raise RefusedQueryError(
                400,
                "unknown_parameter",
                f"unknown parameter '{quoted(name[:64])}'; there are "
                + ", ".join(RELAYED_PARAMETERS),
            )
        if name in given:
            raise RefusedQueryError(400, "repeated_parameter", f"{name} is given more than once")
        given[name] = value
    _check_model_id(given.get("model_id"))
    return given


def _check_model_id(model_id: str | None) -> None:
    if not model_id:
        raise RefusedQueryError(
            400,
            "model_id_required",
            "model_id is missing; ask for one model (the figures of all models together are the "
            "operator's, who asks the sidecar)",
        )
    if model_id == AGGREGATE:
        raise RefusedQueryError(
            403,
            "operators_only",
            "the figures of all models together are the operator's, who asks the sidecar; "
            "ask for one model",
        )
    if len(model_id) > MAX_MODEL_ID:
        raise RefusedQueryError(
            400,
            "bad_model_id",
            f"model_id has {len(model_id)} characters; allowed are up to {MAX_MODEL_ID}",
        )
