"""The forms of the HTTP interface's answers, as JSON schemas."""

from __future__ import annotations

from typing import Any, Final

from ..core.history import MAX_MODELS_SHOWN
from ..core.recent_spans import MAX_SPANS
from .overview import PARTS

_SECONDS: Final = {"type": "number", "minimum": 0}
_COUNT: Final = {"type": "integer", "minimum": 0}


def _described(schema: dict[str, Any], text: str) -> dict[str, Any]:
    return {**schema, "description": text}


def _nullable(schema: dict[str, Any], text: str) -> dict[str, Any]:
    return {**schema, "type": [schema["type"], "null"], "description": text}


def _record(properties: dict[str, Any], text: str) -> dict[str, Any]:
    """An object that has all of these; later releases may add to them."""
    return {
        "type": "object",
        "description": text,
        "required": list(properties),
        "properties": properties,
    }


def reference(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


_PHASE: Final = _record(
    {
        "count": _described({"type": "integer", "minimum": 1}, "Records in the interval."),
        "total_s": _described(_SECONDS, "Their sum."),
        "mean_s": _described(_SECONDS, "total_s / count."),
        "max_s": _described(_SECONDS, "The longest."),
        "mean_batch": _described(
            {"type": "number", "minimum": 0}, "Commands coalesced into one backend execution."
        ),
    },
    "One phase over the interval, in seconds. A batch's wall time counts whole for every model in "
    "it.",
)
_WAIT: Final = _record(
    {
        "self_s": _described(_SECONDS, "The lane ran the model's own work."),
        "neighbors_s": _described(_SECONDS, "The lane ran others' work only."),
        "overhead_s": _described(_SECONDS, "The lane was idle."),
        "unattributed_s": _described(_SECONDS, "Further back than the lane's timeline reaches."),
    },
    "Where the queue waits of one kind went: parts of the total of its queue_wait, in seconds.",
)
_STEP: Final = _record(
    {
        "wall_s": _described(_SECONDS, "The interval; the six parts add up to it."),
        "mine_s": _described(_SECONDS, "The model's share of the batches it was in."),
        "shared_batch_s": _described(_SECONDS, "The rest of those batches."),
        "neighbors_s": _described(_SECONDS, "It waited, and the lane ran others' work."),
        "overhead_s": _described(_SECONDS, "It waited, and the lane was idle."),
        "persist_s": _described(_SECONDS, "Nothing but the persistence of its results went on."),
        "client_s": _described(_SECONDS, "Nothing of it was in the trainer."),
        "since": _described({"type": "number"}, "Unix seconds."),
        "until": _described({"type": "number"}, "Unix seconds."),
    },
    "Where a model's time went over its interval, in seconds.",
)
_LANE: Final = _record(
    {
        "operation": _described({"type": "string"}, "The kind, or a span's name."),
        "for_s": _described(_SECONDS, "For how long by now."),
        "mine": _described({"type": "boolean"}, "Whether with work of the model asked about."),
    },
    "What a lane works on now.",
)
_INTERVAL: Final = _record(
    {
        "reader": _nullable({"type": "string"}, "Whose; null is all those without a name."),
        "from": _described({"type": "string"}, "The cursor where it begins."),
        "cursor": _nullable(
            {"type": "string"},
            "To be passed back as ack. Null unless a reader with a name ended the interval.",
        ),
        "complete": _described(
            {"type": "boolean"},
            "Whether all that the trainer reported over it is in the figures, and it follows the "
            "reader's last one without a hole.",
        ),
        "final": _described(
            {"type": "boolean"}, "Whether the model was forgotten: there will be no more."
        ),
    },
    "Whose interval it is, and what it covers.",
)
_JOURNAL: Final = _record(
    {
        "writing": _described(
            {"type": "boolean"}, "Whether the figures would survive the end of the sidecar."
        ),
        "reason": _nullable({"type": "string"}, "Why not; null if they would."),
    },
    "Whether the sidecar keeps its journal.",
)
_DELIVERY: Final = _record(
    {
        "sent": _described(
            _COUNT, "Calls that were to become an event: applied + dropped + rejected."
        ),
        "applied": _described(_COUNT, "Events that are in the numbers."),
        "dropped": _described(_COUNT, "Events turned away at a bound, refused, or missed."),
        "rejected": _described(_COUNT, "Observer calls that made no valid event."),
        "unweighed": _described(_COUNT, "Commands whose weight could not be told; they weigh one."),
        "missed": _described(_COUNT, "Of the dropped ones: gaps in the numbering."),
        "negative": _described(_COUNT, "Durations below zero, which are in no series."),
        "series_refused": _described(_COUNT, "Records that found no room for a new series."),
        "pending_evicted": _described(_COUNT, "Commands whose wait was given up on at a bound."),
    },
    "What became of the trainer's events over the interval, all its models together.",
)
_TIMING: Final = _record(
    {
        "model_id": _described({"type": "string"}, "The model; * stands for all of them."),
        "uptime_s": _nullable(
            _SECONDS, "Since the trainer's process started; null before one was heard."
        ),
        "phases": {
            "type": "object",
            "description": "By phase: <kind>.queue_wait, .execute, .capture, .persist.",
            "additionalProperties": reference("Phase"),
        },
        "waits": {
            "type": "object",
            "description": "By kind: where its queue waits went.",
            "additionalProperties": reference("Wait"),
        },
        "shares": {
            "type": "object",
            "description": "By kind: the model's part of what the gpu lane ran of it, in seconds; "
            "for all models together, all of it.",
            "additionalProperties": _SECONDS,
        },
        "step": {
            "description": "Null for all models together, and for one that nobody reported.",
            "oneOf": [reference("Step"), {"type": "null"}],
        },
        "lanes": {
            "type": "object",
            "description": "By lane: what it works on now; an idle one is not there.",
            "additionalProperties": reference("Lane"),
        },
        "gauges": {
            "type": "object",
            "description": "Milestones, in seconds since the trainer's process started: "
            "trainer.backend_ready_s, trainer.serving_ready_s, trainer.first_model_ready_s.",
            "additionalProperties": _SECONDS,
        },
        "interval": reference("Interval"),
        "delivery": reference("Delivery"),
        "journal": reference("Journal"),
    },
    "The figures of one model, or of all, over a reader's interval.",
)
_TRAINER: Final = _record(
    {
        "connected": {"type": "boolean"},
        "last_heard_unix_s": _nullable({"type": "number"}, "Null before the first time."),
        "last_heard_age_s": _nullable(_SECONDS, "Seconds ago; null likewise."),
    },
    "Whether a trainer is there.",
)
_LANES: Final = {
    "type": "object",
    "description": "By lane: what it works on now. One that is in the same operation for "
    "long may be stuck.",
    "additionalProperties": _record(
        {
            "operation": {"type": "string"},
            "for_s": _described(_SECONDS, "For how long by now."),
        },
        "What a lane works on.",
    ),
}
_HEALTH: Final = _record(
    {
        "status": _described(
            {"type": "string", "enum": ["ok", "waiting"]}, "waiting: no trainer was heard yet."
        ),
        "trainer": _TRAINER,
        "lanes": _LANES,
        "producers": _described(_COUNT, "Processes that report now."),
        "uptime_s": _described(_SECONDS, "Since the sidecar started."),
        "version": {"type": "string"},
        "journal": reference("Journal"),
        "faults": _described(_COUNT, "Events that a fault of the sidecar's own cost."),
        "ingest": _record(
            {
                "connections": _described(_COUNT, "Open on the Unix socket now."),
                "protocol_errors": _described(_COUNT, "Closed for breaking the protocol."),
                "refused_connections": _described(_COUNT, "Turned away for want of room."),
                "refused_peers": _described(_COUNT, "Turned away for their user."),
                "faults": _described(_COUNT, "Closed by a fault of the sidecar's own."),
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
_WATCHED: Final = _record(
    {
        "model_id": {"type": "string"},
        "queued": _described(_COUNT, "Commands that wait for a lane."),
        "running": _described(_COUNT, "Commands that a lane has, and that are not finished."),
        "executions": _described(_COUNT, "Batches it was in."),
        "commands": _described(_COUNT, "Commands in these batches, of all models in them."),
        "since": _described({"type": "number"}, "Unix seconds: known since."),
        "until": _described({"type": "number"}, "Unix seconds: its account is settled up to then."),
        "step": _record(
            {name: _STEP["properties"][name] for name in PARTS},
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
_OVERVIEW: Final = _record(
    {
        "now": _described({"type": "number"}, "Unix seconds."),
        "version": {"type": "string"},
        "uptime_s": _described(_SECONDS, "Since the sidecar started."),
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
        "models_left_out": _described(_COUNT, "Models that there are besides."),
        "delivery": reference("Delivery"),
        "journal": reference("Journal"),
        "faults": _described(_COUNT, "Events that a fault of the sidecar's own cost."),
    },
    "What is going on, and went on in the last minutes. Delivery is that since the state began.",
)
_HTTP_SERVER: Final = _record(
    {
        "connections": _described(_COUNT, "Open now."),
        "refused": _described(_COUNT, "Turned away because all others were being answered."),
        "evicted": _described(
            _COUNT,
            "Closed to make way for another, while idle or slow to take an answer, or because "
            "answers that nobody took had too much memory.",
        ),
        "timed_out": _described(_COUNT, "Closed for taking too long."),
        "faults": _described(_COUNT, "Closed by a fault of the sidecar's own."),
    },
    "The HTTP server's counts since the sidecar started.",
)
_ERROR: Final = _record(
    {
        "error": _described({"type": "string"}, "A short stable word, for programs."),
        "message": _described({"type": "string"}, "What, why, what to do, for people."),
    },
    "Every answer that is no success.",
)

SCHEMAS: Final[dict[str, Any]] = {
    "Delivery": _DELIVERY,
    "Error": _ERROR,
    "Health": _HEALTH,
    "HttpServer": _HTTP_SERVER,
    "Interval": _INTERVAL,
    "Journal": _JOURNAL,
    "Lane": _LANE,
    "Overview": _OVERVIEW,
    "Phase": _PHASE,
    "Step": _STEP,
    "Timing": _TIMING,
    "Wait": _WAIT,
    "WatchedModel": _WATCHED,
}
"""By name, as `reference` refers to them."""
