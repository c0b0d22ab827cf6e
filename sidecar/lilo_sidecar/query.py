"""The query of `/api/v1/timing`, read strictly: a misspelled ``rest=true`` must not pass for a
plain read."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl

from lilo_engine_hook import wire

from .answers import BadRequestError

MAX_PARAMETERS: Final = 16
"""Parameters of a query that are looked at; there are two to give."""
_KNOWN: Final = ("model_id", "reset")
_BROKEN_PERCENT: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_BOOLEANS: Final = {"true": True, "1": True, "false": False, "0": False}


def parse_timing_query(query: bytes) -> tuple[str | None, bool]:
    """``model_id`` (None for all models) and ``reset``. Raises `BadRequestError` for anything
    that is not exactly one of each."""
    try:
        if _BROKEN_PERCENT.search(query):
            raise ValueError  # parse_qsl would take it literally
        pairs = parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=MAX_PARAMETERS,
        )
    except ValueError:
        raise BadRequestError(
            "bad_query",
            f"the query is not up to {MAX_PARAMETERS} parameters of percent-encoded UTF-8",
        ) from None
    given: dict[str, str] = {}
    for name, value in pairs:
        if name not in _KNOWN:
            raise BadRequestError(
                "unknown_parameter",
                f"unknown parameter {name[:64]!r}; there are {' and '.join(_KNOWN)}",
            )
        if name in given:
            raise BadRequestError("repeated_parameter", f"{name} is given more than once")
        given[name] = value
    return _model_id(given.get("model_id")), _reset(given.get("reset"))


def _model_id(value: str | None) -> str | None:
    if value is None:
        return None
    if not value:
        raise BadRequestError(
            "bad_model_id", "model_id is empty; leave it out to ask for all models"
        )
    if len(value) > wire.MAX_MODEL_ID:
        raise BadRequestError(
            "bad_model_id",
            f"model_id has {len(value)} characters; allowed are up to {wire.MAX_MODEL_ID}",
        )
    return value


def _reset(value: str | None) -> bool:
    if value is None:
        return False
    try:
        return _BOOLEANS[value.lower()]
    except KeyError:
        raise BadRequestError(
            "bad_reset", f"reset is {value[:64]!r}; allowed are true, false, 1 and 0"
        ) from None
