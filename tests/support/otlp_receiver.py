"""A receiver of OTLP/HTTP: what it is sent, read and answered with the protocol's own messages."""

from __future__ import annotations

import contextlib
import gzip
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

TIMEOUT = 20.0
"""Seconds until a test that waits gives up."""


@dataclass(frozen=True)
class ReceivedSpan:
    """A span as it came over the wire. Times are nanoseconds of the Unix clock."""

    service: str
    name: str
    trace_id: bytes
    span_id: bytes
    parent_id: bytes
    start: int
    end: int
    attributes: dict[str, Any]
    links: list[bytes]
    """Ids of the spans it is linked to."""
    events: list[str]
    failed: bool
    port: int
    """The other end of the connection that it came over."""


class OtlpReceiver:
    """Listens at ``endpoint`` (a base URL, for OTEL_EXPORTER_OTLP_ENDPOINT) until closed."""

    def __init__(self) -> None:
        self.spans: list[ReceivedSpan] = []
        self.requests = 0
        self._changed = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def wait_for(self, condition: Callable[[], bool], timeout: float = TIMEOUT) -> None:
        """Return once ``condition`` holds; an AssertionError after ``timeout`` seconds."""
        with self._changed:
            assert self._changed.wait_for(condition, timeout), f"only {self.names()}"

    def names(self) -> list[str]:
        """Of the spans so far."""
        return [span.name for span in self.spans]

    def named(self, name: str) -> list[ReceivedSpan]:
        """The spans of a name."""
        return [span for span in self.spans if span.name == name]

    def commands(self) -> dict[str, ReceivedSpan]:
        """The commands' spans by request id."""
        found = [span for span in self.spans if "lilo.request_id" in span.attributes]
        return {span.attributes["lilo.request_id"]: span for span in found}

    def lane(self, name: str) -> list[ReceivedSpan]:
        """What a lane did under a name."""
        return [span for span in self.named(name) if "lilo.lane" in span.attributes]

    def close(self) -> None:
        """Nobody listens there any more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 1.0  # of a connection that is kept open

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                known = self.path == "/v1/traces"
                known = known and self.headers["Content-Type"] == "application/x-protobuf"
                if known:
                    request = ExportTraceServiceRequest.FromString(body)
                    receiver._take(request, self.client_address[1])
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200 if known else 404)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None: ...

        return Handler

    def _take(self, request: ExportTraceServiceRequest, port: int) -> None:
        with self._changed:
            self.requests += 1
            for resource in request.resource_spans:
                service = _value({a.key: a.value for a in resource.resource.attributes})
                for scope in resource.scope_spans:
                    name = service["service.name"]
                    self.spans += [_received(name, span, port) for span in scope.spans]
            self._changed.notify_all()


def _received(service: str, span: Span, port: int) -> ReceivedSpan:
    return ReceivedSpan(
        service,
        span.name,
        span.trace_id,
        span.span_id,
        span.parent_span_id,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        _value({attribute.key: attribute.value for attribute in span.attributes}),
        [link.span_id for link in span.links],
        [event.name for event in span.events],
        span.status.code == Status.STATUS_CODE_ERROR,
        port,
    )


def _value(values: dict[str, AnyValue]) -> dict[str, Any]:
    return {key: _plain(value) for key, value in values.items()}


def _plain(value: AnyValue) -> Any:
    which = value.WhichOneof("value")
    if which == "array_value":
        return [_plain(each) for each in value.array_value.values]
    return getattr(value, which) if which else None


@contextlib.contextmanager
def otlp_receiver() -> Iterator[OtlpReceiver]:
    """A receiver that is closed at the end."""
    receiver = OtlpReceiver()
    try:
        yield receiver
    finally:
        receiver.close()
