"""What a span's name and ids mean."""

from __future__ import annotations

from functools import lru_cache

from lilo_engine_hook import wire


@lru_cache(maxsize=4 * wire.MAX_NAMES)
def phase_of(name: str) -> str:
    """The phase of a span name: ``capture:K`` is ``K.capture``, likewise ``persist:K`` and
    ``device:K``, anything else is an execution."""
    for prefix in ("capture", "persist", "device"):
        if name.startswith(prefix + ":"):
            return f"{name[len(prefix) + 1 :]}.{prefix}"
    return f"{name}.execute"


def request_ids_of(span: wire.Span, models: tuple[str, ...]) -> tuple[str, ...]:
    """The commands in a span of these distinct models."""
    if span.request_ids is not None:
        return span.request_ids
    if span.seq_ids is not None and len(models) == 1:
        # Sequence numbers are per model; beside several models nobody knows whose they are.
        return tuple(f"{models[0]}:{seq}" for seq in span.seq_ids)
    return ()
