"""The figures that `top` shows, as one JSON document: its form stays as it is, and may grow."""

from __future__ import annotations

import json
from typing import Final

from .overview import WINDOW, Lane, Model, Overview

_PLACES: Final = 6


def document(overview: Overview, url: str) -> str:
    """Times are Unix seconds, durations (``_s``) seconds, shares 0 to 1. Models are in the order in
    which they are shown."""
    return json.dumps(
        {
            "now": overview.now,
            "url": url,
            "version": overview.version,
            "uptime_s": overview.uptime_s,
            "window_s": WINDOW,
            "trainer": {
                "connected": overview.connected,
                "last_heard_age_s": overview.last_heard_age_s,
            },
            "journal": {
                "writing": overview.journal_reason is None,
                "reason": overview.journal_reason,
            },
            "delivery": overview.delivery._asdict(),
            "faults": overview.faults,
            "lanes": [_lane(lane, overview.now) for lane in overview.lanes],
            "models": [_model(model) for model in overview.models],
            "models_left_out": overview.models_left_out,
        },
        allow_nan=False,
    )


def _lane(lane: Lane, now: float) -> dict[str, object]:
    start = max(lane.known_from, now - WINDOW)
    return {
        "lane": lane.name,
        "operation": lane.operation,
        "for_s": lane.for_s if lane.operation is not None else None,
        "known_from": lane.known_from,
        "busy_share": round(lane.busy(start, now), _PLACES),
    }


def _model(model: Model) -> dict[str, object]:
    factor = model.batch_factor
    return {
        "model_id": model.model_id,
        "queued": model.queued,
        "running": model.running,
        "batch_factor": None if factor is None else round(factor, _PLACES),
        "recent_s": round(model.recent_s, _PLACES),
        "interval": {
            "since": round(model.since, _PLACES),
            "until": model.until,
            **{f"{name}_s": seconds for name, seconds in model.parts._asdict().items()},
        },
    }
