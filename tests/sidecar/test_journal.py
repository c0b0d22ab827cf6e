"""The journal's records and its file: what is read back, and where it ends."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lilo_sidecar.state.journal import (
    MAGIC,
    MAX_RECORD,
    Applied,
    Asked,
    BrokenJournalError,
    Connected,
    Disconnected,
    JournalFile,
    Record,
    TornJournalError,
    encode,
    read_records,
)
from support.sealing import sealed_record
from support.unreachable import descriptors, full_disk

RECORDS: tuple[Record, ...] = (
    Connected(1.0, b"hello"),
    Applied(2.5, "boot", b"\x93batch"),
    Asked(3.0, "m\u00fc", True, "loop", "abc.1"),
    Asked(4.0, None, False, None, None),
    Applied(5.0, "boot", bytes(1000)),
    Disconnected(6.0, "boot"),
)
CONTENT = MAGIC + b"".join(map(encode, RECORDS))


def salvaged(data: bytes) -> tuple[list[Record], str | None]:
    """The records up to where the journal ends, and why it ends there."""
    found: list[Record] = []
    try:
        for record in read_records(data):
            found.append(record)
    except BrokenJournalError as error:
        return found, str(error)
    return found, None


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """Record by record, each in the file as soon as it was appended."""
    file = JournalFile(tmp_path / "journal")
    for number, record in enumerate(RECORDS, 1):
        file.append(record)
        data = (tmp_path / "journal").read_bytes()
        assert salvaged(data) == (list(RECORDS[:number]), None)
        assert file.size == len(data)
    file.close()
    assert (tmp_path / "journal").stat().st_mode & 0o777 == 0o600


def test_journal_cut_anywhere_ends_with_the_last_whole_record() -> None:
    """Whatever a process that was killed in the middle of a write leaves."""
    ends = [len(MAGIC)]
    for record in RECORDS:
        ends.append(ends[-1] + len(encode(record)))
    for size in range(len(MAGIC), len(CONTENT)):
        whole = sum(end <= size for end in ends) - 1
        found, reason = salvaged(CONTENT[:size])
        assert found == list(RECORDS[:whole])
        assert (reason is None) == (size in ends)
        if reason is not None:
            assert reason == f"its last {size - ends[whole]} bytes are no whole record"


def test_damaged_byte_ends_the_journal_before_its_record() -> None:
    """Nothing of a damaged record, or after it, is taken for true."""
    ends = [len(MAGIC)]
    for record in RECORDS:
        ends.append(ends[-1] + len(encode(record)))
    for at in range(len(CONTENT)):
        damaged = bytearray(CONTENT)
        damaged[at] ^= 0x55
        found, reason = salvaged(bytes(damaged))
        before = max(0, sum(end <= at for end in ends) - 1)
        assert found == list(RECORDS[:before])
        assert reason is not None


def ended_by(data: bytes) -> type[BrokenJournalError]:
    """What the journal's end is."""
    with pytest.raises(BrokenJournalError) as caught:
        list(read_records(data))
    return caught.type


def test_torn_record_is_told_from_damage() -> None:
    """Nobody was answered from a record that was not written whole; from damaged ones perhaps.
    No damaged byte is taken for a torn end, wherever it is, also not in a length."""
    ends = [len(MAGIC)]
    for record in RECORDS:
        ends.append(ends[-1] + len(encode(record)))
    for size in range(len(MAGIC), len(CONTENT)):
        if size not in ends:
            assert ended_by(CONTENT[:size]) is TornJournalError
    for at in range(len(CONTENT)):
        for mask in (0x01, 0x80, 0xFF):
            damaged = bytearray(CONTENT)
            damaged[at] ^= mask
            assert ended_by(bytes(damaged)) is BrokenJournalError


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_read_without_a_crash(data: bytes, as_payload: bool) -> None:
    """As a whole file, and as a payload that is framed as it should be."""
    if as_payload:
        found, reason = salvaged(MAGIC + sealed_record(data))
        assert (len(found) == 1) == (reason is None)
    else:
        assert isinstance(salvaged(data)[1], str) or data.startswith(MAGIC)


@pytest.mark.parametrize(
    "payload",
    [
        (99, 1.0),
        (-1, 1.0),
        ("1", 1.0),
        (0, 1.0),
        (0, "now", b""),
        (1, 1.0, b"boot", b""),
        (3, 1.0, "m", 1, None, None),
        (),
        None,
    ],
)
def test_record_of_no_kind_ends_the_journal(payload: object) -> None:
    """It was written by something else; what follows cannot be trusted."""
    packed = msgpack.packb(payload)
    found, reason = salvaged(MAGIC + sealed_record(packed) + encode(RECORDS[0]))
    assert found == []
    assert reason is not None
    assert "a record of it is" in reason


def test_record_that_claims_too_much_is_none() -> None:
    """Its length is checked before anything is made of it."""
    data = sealed_record(msgpack.packb(bytes(MAX_RECORD + 1)))
    assert salvaged(MAGIC + data) == (
        [],
        f"its last {len(data)} bytes are not as they were written",
    )


def test_other_files_are_no_journal() -> None:
    """An empty one, one of another format, something else."""
    for data in (b"", b"lilo-timing journal 1\n", b"\x00" * 100):
        assert salvaged(data) == ([], "it is no journal of this format")


def test_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    """Nor is a link followed out of the directory."""
    (tmp_path / "there").write_bytes(b"mine")
    (tmp_path / "link").symlink_to(tmp_path / "there")
    for name in ("there", "link"):
        with pytest.raises(FileExistsError):
            JournalFile(tmp_path / name)
    assert (tmp_path / "there").read_bytes() == b"mine"


def test_write_that_finds_no_room_is_an_error(tmp_path: Path) -> None:
    """Also one of which a part was written: the record is not in the journal then."""
    file = JournalFile(tmp_path / "journal")
    file.append(RECORDS[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.size + 5, hard))
    try:
        with pytest.raises(OSError, match="No space left") as part:
            file.append(RECORDS[1])
        with pytest.raises(OSError, match="File too large") as nothing:
            file.append(RECORDS[1])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (part.value.errno, nothing.value.errno) == (errno.ENOSPC, errno.EFBIG)
    assert salvaged((tmp_path / "journal").read_bytes())[0] == [RECORDS[0]]


def test_file_that_cannot_be_begun_holds_no_descriptor(tmp_path: Path) -> None:
    """A full disk is met again and again, every few seconds."""
    before = descriptors()
    with full_disk():
        for number in range(5):
            with pytest.raises(OSError, match="No space left"):
                JournalFile(tmp_path / f"journal{number}")
    assert descriptors() == before


def test_end_empties_the_file(tmp_path: Path) -> None:
    """On a full disk, too, and wherever the file is by now; then it is closed."""
    file = JournalFile(tmp_path / "journal")
    file.append(RECORDS[0])
    (tmp_path / "journal").rename(tmp_path / "moved")
    with full_disk():
        file.end()
    assert (tmp_path / "moved").read_bytes() == b""
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.append(RECORDS[0])


def test_close_never_raises(tmp_path: Path) -> None:
    """Some file systems tell only then of an error before."""
    file = JournalFile(tmp_path / "journal")
    os.close(file._fd)
    file.close()
