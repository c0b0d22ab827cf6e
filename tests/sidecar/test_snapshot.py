"""Snapshots: what a state may be made from, and what is refused."""

from __future__ import annotations

import pickle
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lilo_sidecar import snapshot
from lilo_sidecar.critical_path import CriticalPath
from lilo_sidecar.snapshot import (
    OtherVersionError,
    SnapshotError,
    SnapshotTooLargeError,
    dump,
    load,
)
from support.feed import Feed, span

HEADING = dump(CriticalPath()).partition(b"\n")[0] + b"\n"


def sealed(state: bytes) -> bytes:
    """Any bytes, as a snapshot of this version that is as it was written."""
    return HEADING + zlib.crc32(state).to_bytes(4, "big") + state


def lookup(module: str, name: str) -> bytes:
    """A pickle that comes to whatever has that name."""
    texts = [b"\x8c" + bytes([len(text)]) + text.encode() for text in (module, name)]
    return b"\x80\x05" + texts[0] + texts[1] + b"\x93."


class Attack:
    """Would run a command if it were unpickled by the standard means."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        import os

        return os.system, ("touch /tmp/never",)


@pytest.mark.parametrize(
    "state",
    [
        pickle.dumps(Attack()),
        b"cbuiltins\neval\n.",
        lookup("builtins", "eval"),
        lookup("os", "system"),
        lookup("lilo_sidecar.critical_path", "wire.encode"),
        lookup("lilo_sidecar.critical_path", "wire"),
        lookup("lilo_sidecar.producers", "logging"),
        lookup("lilo_sidecar.ledger", "msgpack"),
        lookup("lilo_sidecar.recovery", "recover"),
        lookup("lilo_sidecar.state_directory", "StateDirectory"),
    ],
)
def test_nothing_but_the_cores_own_classes_comes_out(state: bytes) -> None:
    """No function, no module, nothing that is imported there."""
    with pytest.raises(SnapshotError, match="it holds no state: UnpicklingError"):
        load(sealed(state))


def test_other_object_is_no_state() -> None:
    """Though it be one of the core's."""
    with pytest.raises(SnapshotError, match="it holds a dict"):
        load(sealed(pickle.dumps({})))


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_without_a_crash(data: bytes) -> None:
    """As a whole file, and as a state that is sealed as it should be."""
    for content in (data, sealed(data)):
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
    """A change of any of the core's modules makes another one."""
    content = dump(CriticalPath())
    other = content.replace(HEADING[-5:], b"0000\n", 1)
    with pytest.raises(OtherVersionError):
        load(other)
    modules = {module.__name__ for module in snapshot._CORE}
    reached = {type(thing).__module__ for thing in _reachable(CriticalPath())}
    assert {name for name in reached if name.startswith("lilo_")} <= modules


def _reachable(thing: object) -> list[object]:
    """Everything that the pickle of an object has in it."""
    found: list[object] = []

    class Pickler(pickle.Pickler):
        def persistent_id(self, obj: object) -> None:
            found.append(obj)

    import io

    Pickler(io.BytesIO(), protocol=5).dump(thing)
    return found


def test_size_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state that is larger is not written, with the figures in the reason."""
    monkeypatch.setattr(snapshot, "MAX_SNAPSHOT", 100)
    with pytest.raises(SnapshotTooLargeError, match=r"the state has \d+ bytes, and a snapshot 100"):
        dump(CriticalPath())
