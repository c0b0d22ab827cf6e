"""The format on the wire: what passes, at its bounds, and what is refused."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lilo_engine_hook import wire
from lilo_engine_hook.wire import MAX_FRAME, MAX_NAMES, FrameBuffer, NameBudget, ProtocolError

HELLO = wire.Hello("boot", None, 7, 1.5, "engine")
EVENTS: list[wire.Event] = [
    wire.Register(1.0, "m"),
    wire.Forget(2.0, "m"),
    wire.Begin(3.0, "m", "m:0", 0, "forward", 64.0),
    wire.Begin(3.0, "m", "other", None, "forward", None),
    wire.Finish(4.0, "m", "m:0"),
    wire.Span(("m", "n"), "forward", "gpu", 5.0, 6.0, ("m:0", "n:0"), None, 2, False, (1.0, 2.0)),
    wire.Span(("m",), "forward", "gpu", 5.0, 6.0, None, (0,), None, None, None),
    wire.Span(("m", "n"), "forward", "gpu", 5.0, 6.0, ("m:0", "n:0"), None, 2, True, None),
    wire.State(7.0, ("m",), "executing:forward"),
    wire.State(7.0, None, "idle"),
    wire.Activity(8.0, "gpu", "m", "m:0", "forward"),
    wire.Activity(8.0, "gpu", None, None, None),
    wire.Gauge(9.0, "backend_ready"),
]


def messages(data: bytes) -> list[wire.Message]:
    """Every message in a byte stream."""
    return [wire.decode(payload) for payload in FrameBuffer().feed(data)]


def batch_of(raw_event: Any) -> bytes:
    """A batch's payload around one event in its packed form."""
    packed: bytes = msgpack.packb(["batch", 1, 0, 0, [raw_event]])
    return packed


def decode_or_refuse(payload: bytes) -> None:
    """Fails on any outcome but a message or a ProtocolError."""
    outcome: object
    try:
        outcome = wire.decode(payload)
    except ProtocolError as refusal:
        outcome = refusal
    assert isinstance(
        outcome, wire.Hello | wire.Batch | wire.Ack | wire.Refusal | wire.ProtocolError
    )


@pytest.mark.parametrize("message", [HELLO, wire.Ack(2**53 - 1), wire.Refusal("busy", "too many")])
def test_messages_come_back_as_they_were(message: wire.Hello | wire.Ack | wire.Refusal) -> None:
    """What one end encodes the other decodes."""
    assert messages(wire.encode(message)) == [message]


def test_batch_comes_back_as_it_was() -> None:
    """Every kind of event, in order, with the producer's totals."""
    frame = wire.encode_batch(41, 3, 2, wire.join([wire.encode_event(event) for event in EVENTS]))
    assert messages(frame) == [wire.Batch(41, 3, 2, tuple(EVENTS))]


def test_format_is_the_documented_one() -> None:
    """The bytes of version 1 stay what they are: an installed hook of this version speaks them."""
    frame = wire.encode_batch(1, 0, 0, wire.join([wire.encode_event(wire.Register(1.0, "m"))]))
    assert frame.hex() == "00000018" + "95a5626174636801000091" + "9301cb3ff0000000000000a16d"
    hello = wire.encode(wire.Hello("b", None, 7, 1.0, "engine"))
    assert hello[:4].hex() == f"{len(hello) - 4:08x}"
    assert hello[4:].hex() == "97a568656c6c6f01a162c007cb3ff0000000000000a6656e67696e65"


@given(st.binary(max_size=200), st.lists(st.integers(1, 50), max_size=30))
def test_frames_survive_any_cutting(payload: bytes, cuts: list[int]) -> None:
    """A stream cut anywhere yields the same frames."""
    stream = b"".join(len(p).to_bytes(4, "big") + p for p in (payload + b"x", b"y", payload + b"z"))
    buffer, out, at = FrameBuffer(), [], 0
    for cut in [*cuts, len(stream)]:
        out += list(buffer.feed(stream[at : at + cut]))
        at += cut
    assert out == [payload + b"x", b"y", payload + b"z"]
    assert buffer.pending == 0


@pytest.mark.parametrize("size", [0, MAX_FRAME + 1, 2**32 - 1])
def test_frame_of_a_wrong_size_is_refused_before_it_comes(size: int) -> None:
    """A length outside the bounds is refused from its four bytes."""
    with pytest.raises(ProtocolError, match=f"claims {size} bytes; allowed are 1 to 262144"):
        list(FrameBuffer().feed(size.to_bytes(4, "big")))


def test_largest_frame_passes() -> None:
    """MAX_FRAME itself is allowed."""
    payload = b"x" * MAX_FRAME
    assert list(FrameBuffer().feed(MAX_FRAME.to_bytes(4, "big") + payload)) == [payload]


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (b"", "msgpack"),
        (b"\xc1", "msgpack"),
        (b"\x93\x01", "msgpack"),
        (b"\x01\x01", "msgpack"),
        (b"\xdd\xff\xff\xff\xff", "msgpack"),
        (b"\xdf\xff\xff\xff\xff", "msgpack"),
        (b"\xdb\xff\xff\xff\xff", "msgpack"),
        (b"\xc6\xff\xff\xff\xff", "msgpack"),
        (b"\xc9\xff\xff\xff\xff\x01", "msgpack"),
        (b"\x91" * 5000 + b"\x01", "msgpack"),
        (b"\xdc\x04\x00" * 5000, "msgpack"),
        (msgpack.packb(["hello", b"bytes"]), "msgpack"),
        (msgpack.packb({"hello": 1}), "msgpack"),
        (msgpack.packb(["x" * 5000]), "msgpack"),
        (b"\x91\xa2\xff\xfe", "msgpack"),
        (msgpack.packb(7), "message"),
        (msgpack.packb([]), "message"),
        (msgpack.packb([7]), "message"),
        (msgpack.packb(["nonsense"]), "message"),
        (msgpack.packb(["ack"]), "message"),
        (msgpack.packb(["ack", -1]), "field"),
        (msgpack.packb(["hello"]), "version"),
        (msgpack.packb(["hello", 2, "b", None, 7, 1.5, "engine"]), "version"),
        (msgpack.packb(["hello", True, "b", None, 7, 1.5, "engine"]), "version"),
        (msgpack.packb(["hello", 1, "b", None, 7, 1.5]), "message"),
        (msgpack.packb(["hello", 1, "b", None, 7, 1.5, "driver"]), "role"),
        (msgpack.packb(["hello", 1, "", None, 7, 1.5, "engine"]), "field"),
        (msgpack.packb(["hello", 1, "b" * 81, None, 7, 1.5, "engine"]), "field"),
        (msgpack.packb(["hello", 1, "b", 5, 7, 1.5, "engine"]), "field"),
        (msgpack.packb(["hello", 1, "b", None, -7, 1.5, "engine"]), "field"),
        (msgpack.packb(["hello", 1, "b", None, 7, float("nan"), "engine"]), "field"),
        (msgpack.packb(["batch", 0, 0, 0, []]), "field"),
        (msgpack.packb(["batch", 1, -1, 0, []]), "field"),
        (msgpack.packb(["batch", 1, 0, 0.5, []]), "field"),
        (msgpack.packb(["batch", 1, 0, 0, None]), "message"),
        (msgpack.packb(["batch", 1, 0, 0, [None] * 1025]), "msgpack"),
        (batch_of(None), "event"),
        (batch_of([]), "event"),
        (batch_of(["1", 1.0, "m"]), "event"),
        (batch_of([99, 1.0, "m"]), "event"),
        (batch_of([1, 1.0]), "event"),
        (batch_of([1, 1.0, "m", "more"]), "event"),
        (batch_of([1, "1.0", "m"]), "field"),
        (batch_of([1, float("inf"), "m"]), "field"),
        (batch_of([1, 1e11, "m"]), "field"),
        (batch_of([1, True, "m"]), "field"),
        (batch_of([1, 1.0, None]), "field"),
        (batch_of([1, 1.0, ""]), "field"),
        (batch_of([1, 1.0, "m" * 257]), "field"),
        (batch_of([8, 1.0, "model_ready"]), "field"),
        (batch_of([8, 1.0, ["backend_ready"]]), "field"),
        (batch_of([5, [], "x", "gpu", 1, 2, None, None, None, None, None]), "field"),
        (batch_of([5, ["m"] * 257, "x", "gpu", 1, 2, None, None, None, None, None]), "field"),
        (batch_of([5, ["m"], "x", "gpu", 1, 2, "m:0", None, None, None, None]), "field"),
        (batch_of([5, ["m"], "x", "gpu", 1, 2, None, [-1], None, None, None]), "field"),
        (batch_of([5, ["m"], "x", "gpu", 1, 2, None, None, -1, None, None]), "field"),
        (batch_of([5, ["m"], "x", "gpu", 1, 2, None, None, None, 1, None]), "field"),
        (batch_of([5, ["m"], "x", "gpu", 1, 2, None, None, None, None, [1e16]]), "field"),
        (batch_of([5, ["m"], "x", "gpu", float("nan"), 2, *[None] * 5]), "field"),
        (batch_of([3, 1.0, "m", "i" * 321, 0, "k", None]), "field"),
        (batch_of([3, 1.0, "m", "i", 2**53, "k", None]), "field"),
        (batch_of([5, ["m"], "x", "gpu", 1, 2, None, None, 2**32, None, None]), "field"),
    ],
)
def test_what_breaks_the_format_is_refused(payload: bytes, code: str) -> None:
    """Each kind of break is one ProtocolError with its code, whatever decoding it went through,
    and its text stays short."""
    with pytest.raises(ProtocolError) as refused:
        wire.decode(payload)
    assert refused.value.code == code
    assert len(str(refused.value)) < 400


def test_values_at_their_bounds_pass() -> None:
    """The longest ids, most models and commands, and the ends of the numbers."""
    widest = wire.Span(
        ("\u00e9" * 256,) * 256, "x" * 80, "l" * 80, -1e10, 1e10,
        ("i",) * 1024, (2**53 - 1,) * 1024, 2**32 - 1, True, (0.0, 1e14),
    )  # fmt: skip
    ends = wire.Begin(0.0, "m" * 256, "r" * 320, 2**53 - 1, "k" * 80, 0.0)
    frame = wire.encode_batch(2**52, 2**53 - 1, 0, wire.join([wire.encode_event(ends)]))
    assert messages(frame) == [wire.Batch(2**52, 2**53 - 1, 0, (ends,))]
    with pytest.raises(ProtocolError, match=r"an event of \d+ bytes is over 131072"):
        wire.encode_event(widest)
    assert len(wire.encode_event(widest._replace(models=widest.models[:100]))) < 131072


@pytest.mark.parametrize("header", [b"\xdc\x04\x00", b"\xdd\x00\x00\x04\x00"])
def test_nested_headers_cost_little_memory(header: bytes) -> None:
    """Arrays in arrays that each claim the most allowed: decoding stays under 10 MiB."""
    payload = header * (MAX_FRAME // len(header))
    tracemalloc.start()
    with pytest.raises(ProtocolError):
        wire.decode(payload)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10 * 1024 * 1024


@given(st.binary(max_size=300))
def test_any_bytes_decode_or_are_refused(payload: bytes) -> None:
    """Nothing but ProtocolError comes out of decoding noise."""
    decode_or_refuse(payload)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=9)
    | st.sampled_from(["batch", "hello", "m", "gpu", "backend_ready", 1, 5, 1.0]) | st.builds(dict),
    lambda children: st.lists(children, max_size=11),
    max_leaves=30,
)  # fmt: skip


@given(_VALUES, st.sampled_from(["raw", "batch", "event", "many"]))
def test_any_value_decodes_or_is_refused(value: Any, place: str) -> None:
    """The same for well-formed msgpack of any shape, at every level of a message."""
    raw = {
        "raw": value,
        "batch": ["batch", 1, 0, 0, value],
        "event": ["batch", 1, 0, 0, [value]],
        "many": ["batch", 1, 0, 0, [value] * 20],
    }
    decode_or_refuse(msgpack.packb(raw[place]))


def test_name_budget_refuses_the_first_name_too_many() -> None:
    """Names, kinds and lanes share MAX_NAMES; those seen go on passing."""
    budget = NameBudget()
    for number in range(MAX_NAMES - 1):
        budget.spend(wire.Begin(1.0, "m", "i", 0, f"k{number}", None))
    budget.spend(wire.Activity(1.0, "gpu", None, None, None))
    for event in (
        wire.Begin(1.0, "m", "i", 0, "more", None),
        wire.Activity(1.0, "gpu", "m", "i", "more"),
        wire.Span(("m",), "more", "gpu", 1.0, 2.0, None, None, None, None, None),
    ):
        with pytest.raises(ProtocolError, match="more than 256 different"):
            budget.spend(event)
    budget.spend(wire.Span(("m",), "k0", "gpu", 1.0, 2.0, None, None, None, None, None))
    budget.spend(wire.Register(1.0, "any model id is fine"))
