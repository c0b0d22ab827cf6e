"""The queries of the HTTP interface, read strictly: a misspelled ``rest=true`` must not pass for a
plain read. No error quotes what was given: it may be a token that was put in the wrong place."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import parse_qsl

from lilo_engine_hook import wire

from ..core.cursor import MAX_CURSOR, Cursor
from .answers import BadRequestError

MAX_PARAMETERS: Final = 16
"""Parameters of a query that are looked at; there are four to give."""
MAX_READER: Final = 64
"""Characters."""
READER_FORM: Final = re.compile(rf"[A-Za-z0-9._-]{{1,{MAX_READER}}}", re.ASCII)
AFTER_FORM: Final = re.compile(r"[0-9]{1,11}(\.[0-9]{1,6})?", re.ASCII)
"""Unix seconds, as answers have them."""
_KNOWN: Final = ("model_id", "reset", "reader", "ack")
_BROKEN_PERCENT: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_BOOLEANS: Final = {"true": True, "1": True, "false": False, "0": False}


class TimingQuery(NamedTuple):
    """What is asked for; see `CriticalPath.timing`."""

    model_id: str | None = None
    """None is all models."""
    reset: bool = False
    reader: str | None = None
    ack: Cursor | None = None


def parse_timing_query(query: bytes) -> TimingQuery:
    """The parameters. Raises `BadRequestError` for anything that is not at most one of each."""
    given = _parameters(query, _KNOWN)
    reader = _reader(given.get("reader"))
    return TimingQuery(
        _model_id(given.get("model_id")),
        _reset(given.get("reset")),
        reader,
        _ack(given.get("ack"), reader),
    )


def parse_overview_query(query: bytes) -> float | None:
    """``after``, in Unix seconds. Raises `BadRequestError` likewise."""
    value = _parameters(query, ("after",)).get("after")
    if value is None:
        return None
    if not AFTER_FORM.fullmatch(value):
        raise BadRequestError(
            "bad_after", "after is no time in Unix seconds; pass the now of an earlier answer"
        )
    return float(value)


def _parameters(query: bytes, known: Sequence[str]) -> dict[str, str]:
    """What is given of what may be."""
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
        if name not in known:
            raise BadRequestError(
                "unknown_parameter", f"unknown parameter; there are {', '.join(known)}"
            )
        if name in given:
            raise BadRequestError("repeated_parameter", f"{name} is given more than once")
        given[name] = value
    return given


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
            "bad_reset", "reset is none of those allowed: true, false, 1 and 0"
        ) from None


def _reader(value: str | None) -> str | None:
    if value is not None and not READER_FORM.fullmatch(value):
        raise BadRequestError(
            "bad_reader",
            f"reader is no name of 1 to {MAX_READER} characters "
            "of A-Z, a-z, 0-9, '.', '_' and '-'; choose one that is",
        )
    return value


def _ack(value: str | None, reader: str | None) -> Cursor | None:
    if value is None:
        return None
    if reader is None:
        raise BadRequestError(
            "ack_without_reader",
            "ack is given without reader; only a reader with a name acknowledges its intervals",
        )
    cursor = Cursor.parse(value) if len(value) <= MAX_CURSOR else None
    if cursor is None:
        raise BadRequestError(
            "bad_ack",
            "ack is no cursor; pass the interval.cursor of the last answer "
            "that was received, as it is",
        )
    return cursor
