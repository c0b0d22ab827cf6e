"""The OpenAPI document of the HTTP interface, as data."""

from __future__ import annotations

from typing import Any, Final

from lilo_engine_hook import wire

from ..core.cursor import CURSOR_FORM
from .json_schema import reference
from .query import AFTER_FORM, READER_FORM
from .schemas import SCHEMAS


def _json(schema: str, text: str) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": reference(schema)}}}


_UNAUTHORIZED: Final = _json("Error", "A token is required and was not given.")
_FOREIGN: Final = _json("Error", "Without a token: the request's Host is not this machine.")
_OPEN: Final[list[dict[str, list[str]]]] = [{}]
_TOKEN: Final[list[dict[str, list[str]]]] = [{}, {"bearer": []}]

_DOCUMENT: Final[dict[str, Any]] = {
    "openapi": "3.1.0",
    "info": {
        "title": "Lilo timing sidecar",
        "description": "Where a multi-tenant LoRA trainer's time goes, per model and phase.",
    },
    "paths": {
        "/api/v1/timing": {
            "get": {
                "operationId": "timing",
                "summary": "One model's figures over a reader's interval, or those of all models",
                "security": _TOKEN,
                "parameters": [
                    {
                        "name": "model_id",
                        "in": "query",
                        "description": "Left out or *: all models together. A model that nobody "
                        "reported has no phases.",
                        "schema": {
                            "type": "string",
                            "minLength": 1,
                            "maxLength": wire.MAX_MODEL_ID,
                        },
                    },
                    {
                        "name": "reset",
                        "in": "query",
                        "description": "Whether the interval ends with this answer; any case.",
                        "schema": {
                            "type": "string",
                            "default": "false",
                            "pattern": "^([Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee]|0|1)$",
                        },
                    },
                    {
                        "name": "reader",
                        "in": "query",
                        "description": "Who asks: each reader has intervals of its own. Left out: "
                        "one shared by all who gave no name.",
                        "schema": {"type": "string", "pattern": f"^{READER_FORM.pattern}$"},
                    },
                    {
                        "name": "ack",
                        "in": "query",
                        "description": "The interval.cursor of the last answer that the reader "
                        "received; until then that interval is given again, with what followed. "
                        "Only together with reader.",
                        "schema": {"type": "string", "pattern": f"^{CURSOR_FORM.pattern}$"},
                    },
                ],
                "responses": {
                    "200": _json("Timing", "The figures."),
                    "400": _json("Error", "An unknown, repeated or malformed parameter."),
                    "401": _UNAUTHORIZED,
                    "403": _FOREIGN,
                },
            }
        },
        "/metrics": {
            "get": {
                "operationId": "metrics",
                "summary": "Everything since the beginning, for a Prometheus server",
                "security": _TOKEN,
                "responses": {
                    "200": {
                        "description": "Metrics, in OpenMetrics 1.0 or in Prometheus' text format, "
                        "as Accept has it.",
                        "content": {
                            kind: {"schema": {"type": "string"}}
                            for kind in ("application/openmetrics-text", "text/plain")
                        },
                    },
                    "401": _UNAUTHORIZED,
                    "403": _FOREIGN,
                },
            }
        },
        "/api/v1/overview": {
            "get": {
                "operationId": "overview",
                "summary": "All models and lanes now and in the last minutes; it ends no interval",
                "security": _TOKEN,
                "parameters": [
                    {
                        "name": "after",
                        "in": "query",
                        "description": "The now of an earlier answer of this sidecar: of spans and "
                        "intervals only those that came after it. Left out: all that are kept.",
                        "schema": {"type": "string", "pattern": f"^{AFTER_FORM.pattern}$"},
                    },
                ],
                "responses": {
                    "200": _json("Overview", "The overview."),
                    "400": _json("Error", "An unknown, repeated or malformed parameter."),
                    "401": _UNAUTHORIZED,
                    "403": _FOREIGN,
                },
            }
        },
        "/healthz": {
            "get": {
                "operationId": "health",
                "summary": "Whether the sidecar runs, and a trainer is connected",
                "security": _OPEN,
                "responses": {"200": _json("Health", "The sidecar runs.")},
            }
        },
        "/openapi.json": {
            "get": {
                "operationId": "openapi",
                "summary": "This document",
                "security": _TOKEN,
                "responses": {
                    "200": {
                        "description": "An OpenAPI 3.1 document.",
                        "content": {"application/json": {"schema": {"type": "object"}}},
                    },
                    "401": _UNAUTHORIZED,
                    "403": _FOREIGN,
                },
            }
        },
    },
    "components": {
        "schemas": SCHEMAS,
        "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
    },
}


def document(version: str) -> dict[str, Any]:
    """The document of the release ``version``."""
    return {**_DOCUMENT, "info": {**_DOCUMENT["info"], "version": version}}
