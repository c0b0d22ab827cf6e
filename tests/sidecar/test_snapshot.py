"""Snapshots: what a state may be made from, and what is refused."""

from __future__ import annotations

import gc
import inspect
import re
import tracemalloc
from collections.abc import Iterator
from random import Random

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lilo_engine_hook import wire
from lilo_sidecar.core.critical_path import CriticalPath
from lilo_sidecar.core.ledger import Cuts
from lilo_sidecar.core.models import MAX_MODELS
from lilo_sidecar.state import snapshot
from lilo_sidecar.state.codec import BrokenStateError, StateCodec
from lilo_sidecar.state.snapshot import (
    MAX_SNAPSHOT,
    OtherVersionError,
    SnapshotError,
    SnapshotTooLargeError,
    dump,
    load,
)
from support.feed import Feed, hello, span
from support.sealing import sealed_snapshot


def test_state_comes_back_as_it_was() -> None:
    """Its figures, and which of its objects are one and the same."""
    core = CriticalPath("abc")
    feed = Feed(core)
    feed(span(["m"], 0, 1), span(["n"], 1, 2))
    again = load(dump(core))
    assert again.lifetime(5.0) == core.lifetime(5.0)
    assert again._producers.shared.cuts is again._cuts
    (trainer,) = again._producers.trainers
    assert trainer.models._shared.cuts is again._cuts
    assert [boot.trainer for boot in again._producers._boots.values()] == [trainer]
    assert dump(again) == dump(core)


def test_numbers_of_any_size_come_back() -> None:
    """The largest that a producer may claim, from so many that their sums need more than 64
    bits: neither a snapshot nor the end of an interval fails for it."""
    core = CriticalPath("abc")
    feed = Feed(core)
    most = wire.Batch(2**53 - 1, 2**53 - 1, 2**53 - 1, (), 2**53 - 1)
    for number in range(1000):
        feed(*[span(["m"], 0, 1, n=2**32 - 1)] * 3)
        core.connect(hello(f"backend{number}", role="backend"), 0.0)
        core.apply(f"backend{number}", most, 0.0)
        core.disconnect(f"backend{number}", 0.0)
    for model in (None, "m"):
        assert core.timing(model, reset=True, now=0.0, reader="loop").delivery.sent > 2**64
    again = load(dump(core))
    for model in (None, "m"):
        answers = [c.timing(model, reset=False, now=0.0, reader="loop") for c in (core, again)]
        assert answers[0] == answers[1]
        assert answers[0].delivery.sent > 2**64


def test_object_of_another_class_is_no_part_of_a_state() -> None:
    """It is noticed when it is written, not when it is read."""
    core = CriticalPath()
    core._producers.last_heard = object()  # type: ignore[assignment]
    with pytest.raises(TypeError, match="a object is no part of a state"):
        dump(core)


@pytest.mark.parametrize(
    "low",
    [
        None,
        (),
        (99,),
        ("0",),
        (-1,),
        (2, "key"),
        (2, (0,), 1),
        (3, 0),
        (3, 99),
        (3, -1),
        (4, 0, 1),
        (5, b"123"),
        (5, "text"),
        (6, 0, "latest", 1, 2),
        (6, 0, "__class__", 1),
        (6, 0, "never", 1),
        (6, 5, "", None),
        (7, 0),
        (7, -1),
        (7,),
        (8, "1e9"),
        (8, None),
    ],
)
def test_what_is_no_state_is_an_error(low: object) -> None:
    """Every form there is, wrong."""
    codec = StateCodec([Cuts])
    try:
        thing = codec.decode(msgpack.packb(low))
    except BrokenStateError as error:
        assert str(error).startswith("it holds no state: ")  # noqa: PT017 - None of them is a match
    else:
        assert thing is None or isinstance(thing, Cuts)
    with pytest.raises(SnapshotError, match=r"it holds (no|a)"):
        load(sealed_snapshot(msgpack.packb(low)))


def test_empty_object_is_a_broken_state() -> None:
    """One of the right class, with nothing in it."""
    number = snapshot._CODEC._classes.index(CriticalPath)
    with pytest.raises(SnapshotError, match="it holds a broken state: AttributeError"):
        load(sealed_snapshot(msgpack.packb((6, number, "_epoch", "abc"))))


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_without_a_crash(data: bytes) -> None:
    """As a whole file, and as a state that is sealed as it should be."""
    for content in (data, sealed_snapshot(data)):
        with pytest.raises(SnapshotError):
            load(content)


def test_every_damaged_byte_is_noticed() -> None:
    """In the heading, the checksum or the state."""
    core = CriticalPath()
    Feed(core)(span(["m"], 0, 1))
    content = dump(core)
    for at in range(len(content)):
        damaged = bytearray(content)
        damaged[at] ^= 1
        with pytest.raises(SnapshotError):
            load(bytes(damaged))
        with pytest.raises(SnapshotError):
            load(content[:at])


def test_version_is_that_of_the_code() -> None:
    """Any other is told apart before anything of it is looked at."""
    heading, _, state = dump(CriticalPath()).partition(b"\n")
    other = heading[:-4] + b"0000" + b"\n" + state
    with pytest.raises(OtherVersionError, match="another version of the sidecar"):
        load(other)


def test_version_covers_all_that_decides_what_a_state_means() -> None:
    """Every module that the core's modules import; but for the answers' form, and the like."""
    covered = {module.__name__.rpartition(".")[2] for module in snapshot._CODE}
    imported = {
        name
        for module in snapshot._CODE
        for name in re.findall(
            r"^from \.{1,2}(?:core\.)?(\w+) import", inspect.getsource(module), re.MULTILINE
        )
    }
    assert imported - covered == {"cursor", "faults", "timing", "totals"}


@pytest.mark.parametrize("bound", ["MAX_STATE", "MAX_SNAPSHOT"])
def test_size_is_bounded(monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    """A state that is larger is not written, packed or not, with the figures in the reason."""
    monkeypatch.setattr(snapshot, bound, 100)
    with pytest.raises(SnapshotTooLargeError, match=r"the state has \d+ bytes.*, of 100 at most"):
        dump(CriticalPath())


def test_snapshot_is_unpacked_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes that were packed of many make no more than a state may have."""
    bomb = sealed_snapshot(msgpack.packb(bytes(10_000_000)))
    assert len(bomb) < 50_000
    monkeypatch.setattr(snapshot, "MAX_STATE", 1000)
    tracemalloc.start()
    try:
        with pytest.raises(SnapshotError, match="it holds no whole state"):
            load(bomb)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.fixture(params=[True, False], ids=["on", "off"])
def collecting(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Whether garbage is collected."""
    before = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if before else gc.disable)()


def test_snapshot_leaves_the_collection_of_garbage_as_it_was(collecting: bool) -> None:
    """On or off, also after one that failed."""
    core = CriticalPath()
    dump(core)
    assert gc.isenabled() == collecting
    core._producers.last_heard = object()  # type: ignore[assignment]
    with pytest.raises(TypeError):
        dump(core)
    assert gc.isenabled() == collecting


def test_no_garbage_is_looked_for_while_a_state_is_written_down(collecting: bool) -> None:
    """It is what takes the time."""
    with snapshot._no_collection():
        assert not gc.isenabled()
    assert gc.isenabled() == collecting


def test_state_of_the_longest_ids_fits() -> None:
    """As many models as there may be, their ids of as many characters as may be, of four bytes
    each, at random."""
    random = Random(1)
    core = CriticalPath()
    feed = Feed(core)
    for _ in range(MAX_MODELS):
        characters = random.choices(range(0x10000, 0x110000), k=wire.MAX_MODEL_ID)
        feed(wire.Register(1.0, "".join(map(chr, characters))))
    packed = dump(core)
    assert len(load(packed)._producers.trainers) == 1
    assert len(packed) < MAX_SNAPSHOT
