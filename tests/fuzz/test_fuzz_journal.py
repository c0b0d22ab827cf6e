"""What may be found in the state directory, fuzzed."""

from __future__ import annotations

import contextlib
import itertools
import json

from lilo_sidecar.core.critical_path import CriticalPath
from lilo_sidecar.state.journal import MAGIC, BrokenJournalError, is_dated, read_records
from lilo_sidecar.state.recovery import replay
from lilo_sidecar.state.snapshot import SnapshotError, dump, load
from support.fuzzing import fuzz
from support.sealing import sealed_record, sealed_snapshot
from support.soak import rounds


def test_journal_of_any_bytes_ends_where_it_is_broken() -> None:
    """Raw, so that mostly a checksum ends it, and with records that are framed as they should
    be: it is read up to somewhere, and the core goes on."""

    def run(data: bytes) -> None:
        records = b"".join(sealed_record(payload) for payload in data.split(b"\xc1\xc1"))
        for journal in (data, MAGIC + data, MAGIC + records):
            found = 0
            with contextlib.suppress(BrokenJournalError):
                for _ in itertools.takewhile(is_dated, read_records(journal)):
                    found += 1
            core = CriticalPath("abc")
            assert replay(core, journal) == found
            answer = core.timing("m", reset=True, now=1.0, reader="loop")
            json.dumps(answer.to_json(), allow_nan=False)

    fuzz("journal", run, rounds(1_500, soak=500_000))


def test_snapshot_of_any_bytes_is_a_state_or_an_error() -> None:
    """Also one whose checksum is right: nothing else is raised, nothing else comes out."""
    whole = dump(CriticalPath("abc"))

    def run(data: bytes) -> None:
        for content in (data, sealed_snapshot(data), whole[: -len(data) or None] + data):
            with contextlib.suppress(SnapshotError):
                assert isinstance(load(content), CriticalPath)

    fuzz("snapshot", run, rounds(3_000, soak=1_000_000))
