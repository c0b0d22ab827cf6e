"""The spans of one command, from its submission to its finish."""

from __future__ import annotations

from opentelemetry.context import Context
from opentelemetry.trace import Span, Status, StatusCode, Tracer, set_span_in_context


class OpenCommand:
    """A command, or a model's creation, that is not over."""

    __slots__ = ("_begun", "_name", "_waiting", "span")

    def __init__(self, name: str, span: Span, begun: int) -> None:
        """``begun`` in nanoseconds."""
        self.span = span
        self._name = name
        self._begun = begun
        self._waiting = True
        """No lane has taken it up."""

    def fail(self) -> None:
        """It, or what a lane did for it, failed."""
        self.span.set_status(Status(StatusCode.ERROR))

    def take_up(self, tracer: Tracer, t0: int) -> None:
        """A lane works on it since ``t0``. The first time, what it waited is a span."""
        if not self._waiting:
            return
        self._waiting = False
        wait = tracer.start_span(
            f"{self._name}.queue_wait",
            set_span_in_context(self.span, Context()),
            start_time=self._begun,
        )
        wait.end(max(self._begun, t0))

    def end(self, at: int | None = None, *, failed: bool = False, abandoned: bool = False) -> None:
        """It is over: now, or ``at`` a time in nanoseconds."""
        if failed:
            self.fail()
        if abandoned:
            self.span.set_attribute("lilo.abandoned", True)
        self.span.end(at)
