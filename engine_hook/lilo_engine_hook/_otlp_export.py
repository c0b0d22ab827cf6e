"""What the OTLP observer takes from the OpenTelemetry SDK: a provider that exports, an end that
comes in time, and values that can be encoded."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from ._plain import plain
from .wire import MAX_COMMANDS_PER_SPAN, MAX_REQUEST_ID, checks

SERVICE: Final = "lilo-trainer"
"""``service.name`` where the environment (``OTEL_SERVICE_NAME``) has none."""
_MAX_SECONDS: Final = 2**63 / 1e9
"""Nanoseconds are 64 bits in OTLP."""


def exporting_provider() -> TracerProvider:
    """Exports over OTLP/HTTP as the environment says (``OTEL_...``), on a thread of the SDK's own.
    Raises what the SDK does for an environment that makes no sense."""
    resource = Resource.create()
    if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: SERVICE}))
    provider = TracerProvider(
        resource=resource,
        # Its own way to end at exit waits for 30 s with a receiver that is away.
        shutdown_on_exit=False,
        span_limits=SpanLimits(max_links=MAX_COMMANDS_PER_SPAN),
    )
    provider.add_span_processor(BatchSpanProcessor(_Exporter()))
    return provider


class _Exporter(SpanExporter):
    """An `OTLPSpanExporter` for each process: one that was forked would speak on its parent's
    connection, in between what that says. Used as the SDK does, under its lock."""

    def __init__(self) -> None:
        self._exporter, self._made_by = OTLPSpanExporter(), os.getpid()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if self._made_by != os.getpid():
            self._exporter, self._made_by = OTLPSpanExporter(), os.getpid()
        return self._exporter.export(spans)

    def shutdown(self) -> None:
        self._exporter.shutdown()  # type: ignore[no-untyped-call]


def ended_within(seconds: float, export: Callable[[], object]) -> bool:
    """Call ``export`` and wait so long at most; whether it ended."""
    thread = threading.Thread(target=export, name="lilo-otlp-close", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # no thread to be had
        return False
    thread.join(seconds)
    return not thread.is_alive()


# What cannot be encoded is turned away here: the exporter drops a whole batch for one such span.


def text(value: object) -> str:
    """A name or an id of 1 to 320 characters, which an enum may stand for. Raises ValueError,
    `wire.ProtocolError`."""
    found = checks.text(plain(value), MAX_REQUEST_ID, "a name or an id")
    found.encode()  # half a surrogate pair is no text
    return found


def nanoseconds(t: float) -> int:
    """Of Unix seconds. Raises ValueError, `wire.ProtocolError`."""
    seconds = checks.time(plain(t), "a time")
    if not 0 <= seconds < _MAX_SECONDS:
        raise ValueError(f"{seconds} is no time in Unix seconds that OTLP can hold")
    return int(seconds * 1e9)
