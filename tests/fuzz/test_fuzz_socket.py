"""What a producer may send, fuzzed: the decoder, and a whole conversation with the core."""

from __future__ import annotations

import contextlib
import json
import tracemalloc
from itertools import count

from lilo_engine_hook import wire
from lilo_sidecar.core.critical_path import CriticalPath
from lilo_sidecar.intake.session import Session
from lilo_sidecar.state.recorder import Recorder
from lilo_sidecar.state.snapshot import dump, load
from lilo_sidecar.web.query import TimingQuery
from support.fuzzing import fuzz
from support.soak import rounds

MAX_ANSWERS = 64 * 1024
"""Bytes of answers to one conversation: an acknowledgement for each batch, and a refusal."""


def frames(data: bytes) -> list[bytes]:
    """A conversation's payloads, each to be framed as it should be: so not every change makes a
    length wrong. The byte that msgpack never uses, twice, stands between them."""
    return data.split(b"\xc1\xc1")


def test_decoder_raises_protocol_errors_only() -> None:
    """Whatever the payload, and however much it claims; and never takes much memory for it."""
    tracemalloc.start()
    try:

        def run(data: bytes) -> None:
            for payload in frames(data):
                with contextlib.suppress(wire.ProtocolError):
                    assert isinstance(wire.decode(payload), tuple)

        fuzz("socket", run, rounds(4_000, soak=1_000_000))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10 * 1024 * 1024


def test_stream_raises_protocol_errors_only() -> None:
    """Raw bytes, lengths and all, in pieces."""

    def run(data: bytes) -> None:
        buffer = wire.FrameBuffer()
        with contextlib.suppress(wire.ProtocolError):
            for at in range(0, len(data), 61):
                for payload in buffer.feed(data[at : at + 61]):
                    wire.decode(payload)
                assert buffer.pending <= wire.MAX_FRAME + 4

    fuzz("socket", run, rounds(4_000, soak=1_000_000), seed=1)


def test_conversation_leaves_the_core_whole() -> None:
    """The core goes on: every answer is finite JSON, the counts agree, no fault was counted, and
    nothing is held of those who hung up."""
    clock = count(1000.0, 0.001).__next__
    core = CriticalPath("abc")
    recorder = Recorder(core, None, clock)

    def run(data: bytes) -> None:
        session = Session(recorder, lambda: None, lambda timing: None)
        try:
            for payload in frames(data):
                if payload:
                    session.receive(len(payload).to_bytes(4, "big") + payload)
        except wire.ProtocolError as error:
            session.refuse(error.code, str(error))
        assert len(session.answers) <= MAX_ANSWERS
        session.end()
        for query in (TimingQuery(), TimingQuery("m", True), TimingQuery("m", True, "loop")):
            answer = recorder.timing(query)
            json.dumps(answer.to_json(), allow_nan=False)
            delivery = answer.delivery
            assert delivery.sent == delivery.applied + delivery.dropped + delivery.rejected
            assert min(delivery) >= 0
            if answer.step is not None:
                assert answer.step.wall_s >= 0
        health = recorder.health()
        assert (health.producers, health.faults) == (0, 0)

    fuzz("socket", run, rounds(2_000, soak=500_000), seed=2)
    state = dump(core)
    assert dump(load(state)) == state
