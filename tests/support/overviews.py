"""Overviews as a sidecar gives them, for tests of what is shown of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

NOW = 1_700_000_000.0
PARTS = ("mine_s", "shared_batch_s", "neighbors_s", "overhead_s", "persist_s", "client_s")
SECONDS = (2.0, 1.0, 0.5, 0.5, 0.0, 1.0)


def model(
    model_id: str = "m",
    seconds: Sequence[float] = SECONDS,
    *,
    until: float = NOW - 1.0,
    queued: int = 0,
    running: int = 0,
    executions: int = 10,
    commands: int = 17,
) -> dict[str, Any]:
    """One model, with one interval in which these seconds went where `PARTS` says."""
    return {
        "model_id": model_id,
        "queued": queued,
        "running": running,
        "executions": executions,
        "commands": commands,
        "since": until - sum(seconds),
        "until": until,
        "step": dict(zip(PARTS, seconds, strict=True)),
        "intervals": [[until, *seconds]],
    }


def overview(*models: dict[str, Any], **sections: Any) -> dict[str, Any]:
    """A whole answer."""
    counts = dict.fromkeys(
        (
            *("sent", "applied", "dropped", "rejected", "unweighed", "missed", "negative"),
            *("series_refused", "pending_evicted"),
        ),
        0,
    )
    return {
        "now": NOW,
        "version": "0.1.0",
        "uptime_s": 12.3,
        "trainer": {
            "connected": True,
            "last_heard_unix_s": NOW - 0.4,
            "last_heard_age_s": 0.4,
        },
        "lanes": {},
        "spans": {},
        "spans_from": {},
        "models": list(models),
        "models_left_out": 0,
        "delivery": {**counts, "sent": 1200, "applied": 1200},
        "journal": {"writing": True, "reason": None},
        "faults": 0,
        **sections,
    }


def busy_overview(count: int = 3) -> dict[str, Any]:
    """One with spans of all kinds, and that many models."""
    names = [f"model-{number}" for number in range(count)]
    models = [
        model(
            name,
            [5.0 / (at + 1), 1.0, 0.5 * at, 0.2, 0.3, 0.1 * at],
            queued=at,
            running=int(at == 0),
            until=NOW - at,
        )
        for at, name in enumerate(names)
    ]
    gpu = [
        [NOW - 100 + 2 * at, NOW - 100 + 2 * at + 1.5, "forward_backward", [names[at % count]]]
        for at in range(50)
    ]
    return overview(
        *models,
        lanes={"gpu": {"operation": "optim_step", "for_s": 0.4}},
        spans={"gpu": gpu, "checkpoint": [[NOW - 50, NOW - 20, "persist:save", names[:1]]]},
        spans_from={"gpu": NOW - 100, "checkpoint": NOW - 600},
    )


def sample_overview() -> dict[str, Any]:
    """Three tenants on one trainer, one of them for 50 s of 90, as docs/OPERATING.md shows them."""
    before = (("light", 4.5), ("tiny", 3.0), ("light", 0.4))
    since = (("heavy", 4.2), ("light", 0.5), ("tiny", 0.4))
    gpu: list[object] = []
    start = NOW - 90.0
    while start < NOW - 5.0:
        for name, seconds in before if start < NOW - 50.0 else since:
            gpu.append([start, start + seconds, "forward_backward", [name]])
            start += seconds + 0.1
    saves: list[object] = [[NOW - 40.0, NOW - 31.0, "persist:save_weights", ["heavy"]]]
    counts = overview()["delivery"]
    return overview(
        model("heavy", (3.3, 0.0, 1.2, 0.1, 0.0, 0.4), queued=1, running=0, commands=10),
        model("light", (1.1, 0.3, 3.3, 0.1, 0.0, 0.1), queued=2, running=0, commands=14),
        model("tiny", (0.6, 0.6, 3.5, 0.1, 0.0, 0.2), queued=3, running=0, commands=15),
        lanes={"gpu": {"operation": "forward_backward", "for_s": 0.4}},
        spans={"checkpoint": saves, "gpu": gpu},
        spans_from={"checkpoint": NOW - 90.0, "gpu": NOW - 90.0},
        uptime_s=90.0,
        delivery={**counts, "sent": 693, "applied": 693},
    )
