"""The forms of the timing answer and of its parts, as JSON schemas."""

from __future__ import annotations

from typing import Final

from .json_schema import COUNT, SECONDS, described, nullable, record, reference

PHASE: Final = record(
    {
        "count": described({"type": "integer", "minimum": 1}, "Records in the interval."),
        "total_s": described(SECONDS, "Their sum."),
        "mean_s": described(SECONDS, "total_s / count."),
        "max_s": described(SECONDS, "The longest."),
        "mean_batch": described(
            {"type": "number", "minimum": 0}, "Commands coalesced into one backend execution."
        ),
    },
    "One phase over the interval, in seconds. A batch's wall time counts whole for every model in "
    "it.",
)
WAIT: Final = record(
    {
        "self_s": described(SECONDS, "The lane ran the model's own work."),
        "neighbors_s": described(SECONDS, "The lane ran others' work only."),
        "overhead_s": described(SECONDS, "The lane was idle."),
        "unattributed_s": described(SECONDS, "Further back than the lane's timeline reaches."),
    },
    "Where the queue waits of one kind went: parts of the total of its queue_wait, in seconds.",
)
STEP: Final = record(
    {
        "wall_s": described(SECONDS, "The interval; the six parts add up to it."),
        "mine_s": described(SECONDS, "The model's share of the batches it was in."),
        "shared_batch_s": described(SECONDS, "The rest of those batches."),
        "neighbors_s": described(SECONDS, "It waited, and the lane ran others' work."),
        "overhead_s": described(SECONDS, "It waited, and the lane was idle."),
        "persist_s": described(SECONDS, "Nothing but the persistence of its results went on."),
        "client_s": described(SECONDS, "Nothing of it was in the trainer."),
        "since": described({"type": "number"}, "Unix seconds."),
        "until": described({"type": "number"}, "Unix seconds."),
    },
    "Where a model's time went over its interval, in seconds.",
)
LANE: Final = record(
    {
        "operation": described({"type": "string"}, "The kind, or a span's name."),
        "for_s": described(SECONDS, "For how long by now."),
        "mine": described({"type": "boolean"}, "Whether with work of the model asked about."),
    },
    "What a lane works on now.",
)
INTERVAL: Final = record(
    {
        "reader": nullable({"type": "string"}, "Whose; null is all those without a name."),
        "from": described({"type": "string"}, "The cursor where it begins."),
        "cursor": nullable(
            {"type": "string"},
            "To be passed back as ack. Null unless a reader with a name ended the interval.",
        ),
        "complete": described(
            {"type": "boolean"},
            "Whether all that the trainer reported over it is in the figures, and it follows the "
            "reader's last one without a hole.",
        ),
        "final": described(
            {"type": "boolean"}, "Whether the model was forgotten: there will be no more."
        ),
    },
    "Whose interval it is, and what it covers.",
)
JOURNAL: Final = record(
    {
        "writing": described(
            {"type": "boolean"}, "Whether the figures would survive the end of the sidecar."
        ),
        "reason": nullable({"type": "string"}, "Why not; null if they would."),
    },
    "Whether the sidecar keeps its journal.",
)
DELIVERY: Final = record(
    {
        "sent": described(
            COUNT, "Calls that were to become an event: applied + dropped + rejected."
        ),
        "applied": described(COUNT, "Events that are in the numbers."),
        "dropped": described(COUNT, "Events turned away at a bound, refused, or missed."),
        "rejected": described(COUNT, "Observer calls that made no valid event."),
        "unweighed": described(COUNT, "Commands whose weight could not be told; they weigh one."),
        "missed": described(COUNT, "Of the dropped ones: gaps in the numbering."),
        "negative": described(COUNT, "Durations below zero, which are in no series."),
        "series_refused": described(COUNT, "Records that found no room for a new series."),
        "pending_evicted": described(COUNT, "Commands whose wait was given up on at a bound."),
    },
    "What became of the trainer's events over the interval, all its models together.",
)
TIMING: Final = record(
    {
        "model_id": described({"type": "string"}, "The model; * stands for all of them."),
        "uptime_s": nullable(
            SECONDS, "Since the trainer's process started; null before one was heard."
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
            "additionalProperties": SECONDS,
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
            "additionalProperties": SECONDS,
        },
        "interval": reference("Interval"),
        "delivery": reference("Delivery"),
        "journal": reference("Journal"),
    },
    "The figures of one model, or of all, over a reader's interval.",
)
