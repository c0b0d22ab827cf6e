"""What the OTLP observer makes of an engine's calls, as a receiver that reads the protocol's own
messages has it."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from lilo_engine_hook import _otlp_export
from lilo_engine_hook.otlp import MAX_OPEN, OtlpObserver
from support.operations import Operation
from support.otlp_receiver import OtlpReceiver

BACKWARD = "forward_backward"


def test_a_command_is_a_trace_and_a_batch_is_linked_to_its_commands(
    collector: OtlpReceiver,
) -> None:
    """From submission to finish, with the wait as its child, by the engine's own times; the lane's
    span is nobody's child and links to each command in it."""
    observer = OtlpObserver()
    operations = [Operation(model, 7) for model in "ab"]
    before = time.time_ns()
    for operation in operations:
        observer.begin(operation)
    t0 = time.time()
    observer.span(["a", "b"], BACKWARD, "gpu", t0, t0 + 2, request_ids=["a:7", "b:7"], n=2, ok=True)
    for operation in operations:
        observer.finish(operation, "done")
    after = time.time_ns()
    observer.close()

    commands = collector.commands()
    assert list(commands) == ["a:7", "b:7"]
    for model, span in zip("ab", commands.values(), strict=True):
        assert span.service == _otlp_export.SERVICE
        assert span.name == BACKWARD
        assert span.attributes == {
            "lilo.model_id": model,
            "lilo.request_id": f"{model}:7",
            "lilo.seq_id": 7,
            "lilo.kind": BACKWARD,
        }
        assert before <= span.start <= span.end <= after
        assert (span.parent_id, span.failed) == (b"", False)
        (wait,) = [each for each in collector.spans if each.parent_id == span.span_id]
        assert wait.name == f"{BACKWARD}.queue_wait"
        assert wait.trace_id == span.trace_id
        assert wait.start == span.start
    (batch,) = collector.lane(BACKWARD)
    assert batch.links == [span.span_id for span in commands.values()]
    assert batch.attributes == {"lilo.lane": "gpu", "lilo.models": ["a", "b"], "lilo.commands": 2}
    assert batch.start == int(t0 * 1e9)
    assert batch.end - batch.start == pytest.approx(2e9, abs=1000)
    assert batch.parent_id == b""
    assert {each.end for each in collector.named(f"{BACKWARD}.queue_wait")} == {batch.start}
    assert len({span.trace_id for span in [*commands.values(), batch]}) == 3


def test_a_save_waits_once_and_both_its_lanes_link_to_it(collector: OtlpReceiver) -> None:
    """Its capture and its persist are spans of their lanes; only before the first did it wait."""
    observer = OtlpObserver()
    save = Operation("m", 1, "save_weights")
    observer.begin(save)
    observer.reuse("m:1")
    now = time.time()
    observer.span(["m"], "capture:save_weights", "gpu", now, request_ids=["m:1"])
    observer.span("m", "persist:save_weights", "checkpoint", now, seq_ids=[1])
    observer.finish(save, "done")
    observer.close()
    command = collector.commands()["m:1"]
    assert command.events == ["submitted again"]
    assert collector.lane("capture:save_weights")[0].links == [command.span_id]
    assert collector.lane("persist:save_weights")[0].links == [command.span_id]
    assert len(collector.named("save_weights.queue_wait")) == 1


def test_a_models_creation_is_a_trace(collector: OtlpReceiver) -> None:
    """From its registration to the end of the engine's accept; one that is forgotten before it was
    accepted says so."""
    observer = OtlpObserver()
    observer.register_model("m", {"rank": 4})
    observer.register_model("gone")
    t1 = time.time() + 1
    observer.span(["m"], "accept", "gpu", time.time(), t1, n=1, ok=True)
    observer.forget_model("gone")
    observer.close()
    (lane,) = collector.lane("accept")
    models = {
        span.attributes["lilo.model_id"]: span
        for span in collector.named("accept")
        if span is not lane
    }
    assert lane.links == [models["m"].span_id]
    assert models["m"].end == lane.end
    assert "lilo.abandoned" not in models["m"].attributes
    assert models["gone"].attributes["lilo.abandoned"] is True


@pytest.mark.parametrize(("state", "ok"), [("failed", True), ("done", False)])
def test_a_failure_is_an_error_of_the_span(collector: OtlpReceiver, state: str, ok: bool) -> None:
    """Whether the engine or the lane says so; the engine's own words stay in the trainer."""
    observer = OtlpObserver()
    for seq in (1, 2):
        observer.begin(Operation("m", seq))
    observer.span("m", BACKWARD, "gpu", time.time(), request_ids=["m:1"], ok=ok)
    observer.span("m", BACKWARD, "gpu", time.time(), request_ids=["m:2"], ok=True)
    observer.finish(Operation("m", 1), state)
    observer.finish(Operation("m", 2), "out of memory in /secret/path")
    observer.close()
    commands = collector.commands()
    assert [commands[f"m:{seq}"].failed for seq in (1, 2)] == [True, False]
    assert [span.failed for span in collector.lane(BACKWARD)] == [not ok, False]
    assert "secret" not in repr(collector.spans)


def test_nothing_of_a_payload_or_a_specification_leaves(collector: OtlpReceiver) -> None:
    """Nor of the attributes of a span that are not the interface's."""
    observer = OtlpObserver()
    observer.register_model("m", {"note": "secret"})
    observer.begin(Operation("m", 1, payload={"tokens": "secret"}))
    observer.span("m", BACKWARD, "gpu", time.time(), request_ids=["m:1"], note="secret")
    observer.close()
    assert len(collector.spans) == 4
    assert "secret" not in repr(collector.spans)


def test_open_commands_are_bounded_and_the_oldest_is_ended(collector: OtlpReceiver) -> None:
    """At the bound the oldest makes way, marked and counted; a retry takes no room."""
    observer = OtlpObserver()
    for seq in range(MAX_OPEN):
        observer.begin(Operation("m", seq))
    observer.begin(Operation("m", 0))
    assert observer.evicted == 0
    observer.begin(Operation("m", MAX_OPEN))
    assert observer.evicted == 1
    observer.finish(Operation("m", 0), "done")  # heard of too late
    observer.finish(Operation("m", MAX_OPEN), "done")
    collector.wait_for(lambda: {"m:0", f"m:{MAX_OPEN}"} <= set(collector.commands()))
    commands = collector.commands()
    assert commands["m:0"].attributes["lilo.abandoned"] is True
    assert "lilo.abandoned" not in commands[f"m:{MAX_OPEN}"].attributes
    observer.close()
    assert observer.evicted == 1


def test_every_command_of_a_large_batch_is_linked(collector: OtlpReceiver) -> None:
    """The SDK's own limit is 128 links; a span of the interface has up to 1,024 commands."""
    observer = OtlpObserver()
    ids = [f"m:{seq}" for seq in range(1024)]
    for seq in range(1024):
        observer.begin(Operation("m", seq))
    observer.span("m", BACKWARD, "gpu", time.time(), request_ids=ids)
    collector.wait_for(lambda: bool(collector.lane(BACKWARD)))
    assert len(collector.lane(BACKWARD)[0].links) == 1024
    observer.close()


class UnreadableError(Exception):
    """Not even its text can be had."""

    def __str__(self) -> str:
        raise RuntimeError("no text either")


class Unreadable:
    """An operation whose attributes raise."""

    def __getattr__(self, name: str) -> Any:
        raise UnreadableError


_BAD_CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("begin", (Unreadable(),), {}),
    ("register_model", (7,), {}),
    ("register_model", ("\ud800",), {}),
    ("begin", (Operation("m", 2**63),), {}),
    ("begin", (Operation("m", 1, object()),), {}),
    ("begin", (Operation("m" * 1000),), {}),
    ("reuse", ([],), {}),
    ("finish", (Unreadable(), "done"), {}),
    ("finish", (), {}),
    ("forget_model", ({},), {}),
    ("span", ("m", "x", "gpu", float("nan")), {}),
    ("span", ("m", "x", "gpu", -1.0), {}),
    ("span", ("m", "x", "gpu", 1e30), {}),
    ("span", ("m", "x", "gpu", "yesterday"), {}),
    ("span", ("m", "x", "gpu", 1.0, 2.0), {"n": 2**70}),
    ("span", ("m", "x", "gpu", 1.0, 2.0), {"request_ids": [[]]}),
    ("span", ("m", "x", "gpu", 1.0, 2.0), {"request_ids": ["m:1"] * 1025}),
    ("span", (object(), "x", "gpu", 1.0, 2.0), {}),
    ("span", ("m", "\udc00", "gpu", 1.0, 2.0), {}),
    ("state", (), {}),
    ("set_activity", (), {}),
]


def test_otlp_calls_that_make_no_span_are_counted_and_never_raise(
    collector: OtlpReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has the first; a good span beside them is exported, so none reached the exporter,
    which drops a whole batch for one that it cannot encode."""
    observer = OtlpObserver()
    for count, (method, args, attrs) in enumerate(_BAD_CALLS, 1):
        getattr(observer, method)(*args, **attrs)
        assert observer.rejected == count, (method, args, attrs)
    warnings = [r.getMessage() for r in caplog.records if r.name == "lilo_engine_hook"]
    assert len(warnings) == 1
    assert warnings[0].startswith("lilo otlp: a call of begin makes no span: UnreadableError;")
    observer.span("m", "good", "gpu", time.time())
    observer.close()
    assert collector.names() == ["good"]


def test_the_engines_own_span_is_no_parent(collector: OtlpReceiver) -> None:
    """A request's span that is current where a command is submitted does not take it in."""
    observer = OtlpObserver()
    tracer = TracerProvider().get_tracer("engine")
    with tracer.start_as_current_span("a request"):
        observer.begin(Operation("m", 1))
        observer.span("m", BACKWARD, "gpu", time.time(), request_ids=["m:1"])
    observer.close()
    assert [s.name for s in collector.spans if s.parent_id] == [f"{BACKWARD}.queue_wait"]


def test_calls_from_many_threads_lose_nothing(
    collector: OtlpReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    """Each command ends once, in whatever thread."""
    caplog.set_level(logging.ERROR, "opentelemetry")  # until this test is over
    observer = OtlpObserver()

    def run(model: str) -> None:
        for seq in range(100):
            observer.begin(Operation(model, seq))
            observer.span(model, BACKWARD, "gpu", time.time(), request_ids=[f"{model}:{seq}"])
            observer.finish(Operation(model, seq), "done")

    threads = [threading.Thread(target=run, args=(model,)) for model in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    observer.close()
    assert len(collector.commands()) == 400
    assert len(collector.spans) == 1200
    assert observer.rejected == 0
