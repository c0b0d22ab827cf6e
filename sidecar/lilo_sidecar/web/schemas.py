"""The forms of the HTTP interface's answers, as JSON schemas."""

from __future__ import annotations

from typing import Any, Final

from ..core.history import MAX_MODELS_SHOWN
from ..core.recent_spans import MAX_SPANS
from .json_schema import COUNT, SECONDS, described, nullable, record, reference
from .overview import PARTS
from .timing_schemas import DELIVERY, INTERVAL, JOURNAL, LANE, PHASE, STEP, TIMING, WAIT

_TRAINER: Final = record(
    {
        "connected": {"type": "boolean"},
        "last_heard_unix_s": nullable({"type": "number"}, "Null before the first time."),
        "last_heard_age_s": nullable(SECONDS, "Seconds ago; null likewise."),
    },
    "Whether a trainer is there.",
)
_LANES: Final = {
    "type": "object",
    "description": "By lane: what it works on now. One that is in the same operation for "
    "long may be stuck.",
    "additionalProperties": record(
        {
            "operation": {"type": "string"},
            "for_s": described(SECONDS, "For how long by now."),
        },
        "What a lane works on.",
    ),
}
_HEALTH: Final = record(
    {
        "status": described(
            {"type": "string", "enum": ["ok", "waiting"]}, "waiting: no trainer was heard yet."
        ),
        "trainer": _TRAINER,
        "lanes": _LANES,
        "producers": described(COUNT, "Processes that report now."),
        "uptime_s": described(SECONDS, "Since the sidecar started."),
        "version": {"type": "string"},
        "journal": reference("Journal"),
        "faults": described(COUNT, "Events that a fault of the sidecar's own cost."),
        "ingest": record(
            {
                "connections": described(COUNT, "Open on the Unix socket now."),
                "protocol_errors": described(COUNT, "Closed for breaking the protocol."),
                "refused_connections": described(COUNT, "Turned away for want of room."),
                "refused_peers": described(COUNT, "Turned away for their user."),
                "faults": described(COUNT, "Closed by a fault of the sidecar's own."),
            },
            "The intake's counts since the sidecar started.",
        ),
        "http": {
            "description": "Null where something else serves HTTP.",
            "oneOf": [reference("HttpServer"), {"type": "null"}],
        },
    },
    "The sidecar's own state. It holds no client's figures.",
)
_WATCHED: Final = record(
    {
        "model_id": {"type": "string"},
        "queued": described(COUNT, "Commands that wait for a lane."),
        "running": described(COUNT, "Commands that a lane has, and that are not finished."),
        "executions": described(COUNT, "Batches it was in."),
        "commands": described(COUNT, "Commands in these batches, of all models in them."),
        "since": described({"type": "number"}, "Unix seconds: known since."),
        "until": described({"type": "number"}, "Unix seconds: its account is settled up to then."),
        "step": record(
            {name: STEP["properties"][name] for name in PARTS},
            "Where its time went from since to until, in seconds that add up to it.",
        ),
        "intervals": {
            "type": "array",
            "description": "The last minutes, oldest first: [until, mine, shared batch, neighbors, "
            "overhead, persist, client]. The six add up to the interval, which begins that much "
            "before its until, where the one before ends.",
            "items": {
                "type": "array",
                "items": {"type": "number"},
                "minItems": 1 + len(PARTS),
                "maxItems": 1 + len(PARTS),
            },
        },
    },
    "One model.",
)
_OVERVIEW: Final = record(
    {
        "now": described({"type": "number"}, "Unix seconds."),
        "version": {"type": "string"},
        "uptime_s": described(SECONDS, "Since the sidecar started."),
        "trainer": _TRAINER,
        "lanes": _LANES,
        "spans": {
            "type": "object",
            "description": f"By lane: the last spans, up to {MAX_SPANS} of all lanes, in the order "
            "they began: [t0, t1, name, models], times in Unix seconds.",
            "additionalProperties": {
                "type": "array",
                "items": {
                    "type": "array",
                    "prefixItems": [
                        {"type": "number"},
                        {"type": "number"},
                        {"type": "string"},
                        {"type": "array", "items": {"type": "string"}, "minItems": 1},
                    ],
                    "minItems": 4,
                    "maxItems": 4,
                },
            },
        },
        "spans_from": {
            "type": "object",
            "description": "By lane, those in spans and lanes: Unix seconds; of what ended earlier "
            "some is not known here.",
            "additionalProperties": {"type": "number"},
        },
        "models": {
            "type": "array",
            "description": "Those whose accounts moved last, by their ids.",
            "items": reference("WatchedModel"),
            "maxItems": MAX_MODELS_SHOWN,
        },
        "models_left_out": described(COUNT, "Models that there are besides."),
        "delivery": reference("Delivery"),
        "journal": reference("Journal"),
        "faults": described(COUNT, "Events that a fault of the sidecar's own cost."),
    },
    "What is going on, and went on in the last minutes. Delivery is that since the state began.",
)
_HTTP_SERVER: Final = record(
    {
        "connections": described(COUNT, "Open now."),
        "refused": described(COUNT, "Turned away because all others were being answered."),
        "evicted": described(
            COUNT,
            "Closed to make way for another, while idle or slow to take an answer, or because "
            "answers that nobody took had too much memory.",
        ),
        "timed_out": described(COUNT, "Closed for taking too long."),
        "faults": described(COUNT, "Closed by a fault of the sidecar's own."),
    },
    "The HTTP server's counts since the sidecar started.",
)
_ERROR: Final = record(
    {
        "error": described({"type": "string"}, "A short stable word, for programs."),
        "message": described({"type": "string"}, "What, why, what to do, for people."),
    },
    "Every answer that is no success.",
)

SCHEMAS: Final[dict[str, Any]] = {
    "Delivery": DELIVERY,
    "Error": _ERROR,
    "Health": _HEALTH,
    "HttpServer": _HTTP_SERVER,
    "Interval": INTERVAL,
    "Journal": JOURNAL,
    "Lane": LANE,
    "Overview": _OVERVIEW,
    "Phase": PHASE,
    "Step": STEP,
    "Timing": TIMING,
    "Wait": WAIT,
    "WatchedModel": _WATCHED,
}
"""By name, as `reference` refers to them."""
