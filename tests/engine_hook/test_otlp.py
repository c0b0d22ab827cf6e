"""The OTLP observer in a trainer's process: its settings, its exporters and its end."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

from lilo_engine_hook import _otlp_export
from lilo_engine_hook.otlp import CLOSE_TIMEOUT, OtlpObserver
from support.operations import Operation
from support.otlp_receiver import TIMEOUT, OtlpReceiver
from support.receiver import receiver as timing_receiver
from support.snippets import snippet
from support.timely import TRIES, took

BACKWARD = "forward_backward"


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An endpoint that nobody listens at. The SDK goes on trying for half a minute after a close
    that gave up, and would log that into whatever test runs then: it is stopped here."""
    made: list[OTLPSpanExporter] = []

    def exporter() -> OTLPSpanExporter:
        made.append(OTLPSpanExporter())
        return made[-1]

    monkeypatch.setattr(_otlp_export, "OTLPSpanExporter", exporter)
    before = set(threading.enumerate())
    with socket.socket() as taken:  # and nobody can, while it is bound
        taken.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        yield
        for each in made:
            each.shutdown()  # type: ignore[no-untyped-call]
        for thread in set(threading.enumerate()) - before:
            thread.join(TIMEOUT)


def test_the_environment_names_the_service(
    collector: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As OpenTelemetry's specification says."""
    monkeypatch.setenv("OTEL_SERVICE_NAME", "trainer-7")
    observer = OtlpObserver()
    observer.span("m", BACKWARD, "gpu", time.time())
    observer.close()
    assert [span.service for span in collector.spans] == ["trainer-7"]


def test_a_providers_own_exporters_are_used_and_not_shut_down(
    collector: OtlpReceiver,
) -> None:
    """`close` flushes what the trainer's provider has, which goes on working."""
    provider = _otlp_export.exporting_provider()
    observer = OtlpObserver(provider)
    observer.span("m", BACKWARD, "gpu", time.time())
    observer.close()
    collector.wait_for(lambda: collector.names() == [BACKWARD])
    provider.get_tracer("trainer").start_span("of the trainer").end()
    provider.force_flush()
    assert collector.names() == [BACKWARD, "of the trainer"]
    provider.shutdown()


def test_only_rank_0_exports(collector: OtlpReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks run the same commands; another one's observer does nothing at all."""
    monkeypatch.setenv("RANK", "1")
    threads = set(threading.enumerate())
    observer = OtlpObserver()
    observer.span("m", BACKWARD, "gpu", time.time())
    assert set(threading.enumerate()) <= threads
    observer.close()
    assert collector.requests == 0


def test_an_environment_that_makes_no_sense_does_not_stop_the_trainer(
    collector: OtlpReceiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says what; the observer does nothing."""
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "-1")
    observer = OtlpObserver()
    observer.begin(Operation("m", 1))
    observer.close()
    assert "lilo otlp is off: max_queue_size must be a positive integer" in caplog.text
    assert collector.requests == 0


def test_without_a_receiver_calls_and_close_are_bounded(
    nowhere: None, caplog: pytest.LogCaptureFixture
) -> None:
    """No call waits for it, whatever is queued; close gives up and says so."""
    tries: list[float] = []
    while not tries or (tries[-1] >= 2 * CLOSE_TIMEOUT and len(tries) < TRIES):
        observer = OtlpObserver()
        for seq in range(3000):
            observer.begin(Operation("m", seq))
            observer.finish(Operation("m", seq), "done")
        assert (observer.rejected, observer.evicted) == (0, 0)
        tries.append(took(observer.close))
        observer.begin(Operation("m", 1))  # passed over
        observer.close()
        assert observer.rejected == 0
    assert tries[-1] < 2 * CLOSE_TIMEOUT, "the SDK's own end takes 30 s"
    said = [r.getMessage() for r in caplog.records if r.name == "lilo_engine_hook"]
    assert said == [
        "lilo otlp: not everything was exported within 2 s; "
        "is there a receiver at OTEL_EXPORTER_OTLP_ENDPOINT?"
    ] * len(tries)


def test_a_process_that_just_ends_exports_what_is_left(collector: OtlpReceiver) -> None:
    """Without `close`; commands that were never finished are marked."""
    script = """
import time
from lilo_engine_hook.otlp import OtlpObserver
from support.operations import Operation
observer = OtlpObserver()
observer.begin(Operation("m", 1))
observer.span("m", "forward_backward", "gpu", time.time(), request_ids=["m:1"])
"""
    tests = str(Path(__file__).parents[1])
    subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {tests!r})\n{script}"],
        check=True,
        timeout=30,
    )
    assert collector.commands()["m:1"].attributes["lilo.abandoned"] is True
    assert len(collector.lane(BACKWARD)) == 1


@pytest.mark.usefixtures("patient")
def test_the_documents_example_tells_both(
    collector: OtlpReceiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it stands, for an engine: the sidecar's socket and the receiver hear of a command."""
    monkeypatch.setenv("LILO_TIMING_SOCKET", str(tmp_path / "timing.sock"))
    engine: Any = SimpleNamespace(observer=None)
    with timing_receiver(tmp_path / "timing.sock") as far:
        exec(snippet("OBSERVER.md", "OpenTelemetry beside it"), {"engine": engine})
        engine.observer.begin(Operation("m", 1))
        engine.observer.finish(Operation("m", 1), "done")
        engine.observer.close()
    assert [type(event).__name__ for event in far.events] == ["Begin", "Finish"]
    assert list(collector.commands()) == ["m:1"]


def test_without_the_sdk_the_import_says_what_to_install() -> None:
    """The hook itself goes on working."""
    script = """
import sys
sys.modules["opentelemetry.sdk.trace"] = None
import lilo_engine_hook
try:
    import lilo_engine_hook.otlp
except ImportError as error:
    print(error)
"""
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "pip install 'lilo-timing[otlp]'" in out.stdout
