"""`lilo-sidecar trace` of damaged journals: what is left out is told of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lilo_sidecar.errors import StartError
from lilo_sidecar.state.journal import MAGIC, Applied, Connected, Disconnected, encode
from lilo_sidecar.trace import export
from support.feed import span
from support.journaled import begun, killed
from support.traces import Trace, trace_options

RECORDS = "2 records are left out of the journals: damaged, or of a time that no clock has"
JOURNAL = "1 journal is cut off: damaged, or of another format"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """With two journals of one span each."""
    recorder, engine = begun(tmp_path / "state")
    recorder._begin()
    engine.send(recorder, span(["m"], 1, 2))
    killed(recorder)
    return tmp_path / "state"


def starts(state: Path) -> list[float]:
    """When the executions on the gpu lane began, in Unix seconds."""
    file = state.with_name("trace.json")
    assert export(trace_options("--state-dir", state, "-o", file, "--last", "1h")) == 0
    return [
        each.start / 1e6 for each in Trace(json.loads(file.read_text())["traceEvents"]).on("gpu")
    ]


def damaged(journal: Path) -> None:
    """Its first record is not as it was written."""
    content = bytearray(journal.read_bytes())
    content[len(MAGIC) + 20] ^= 1
    journal.write_bytes(content)


def losses(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines on stderr behind those about the trace that is written."""
    return [
        line.removeprefix("lilo-sidecar: ") for line in capsys.readouterr().err.splitlines()[2:]
    ]


def test_journal_that_is_torn_lacks_nothing(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody was answered what a record says that was not written whole."""
    with (state / "journal-1").open("ab") as file:
        file.write(encode(Disconnected(1001.0, "boot"))[:-1])
    assert starts(state) == [0, 1]
    assert losses(capsys) == []


def test_records_of_another_protocol_are_counted(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are whole, and what they hold is no message."""
    with (state / "journal-1").open("ab") as file:
        file.write(encode(Applied(1001.0, "boot", b"none")) + encode(Connected(1001.0, b"none")))
    assert starts(state) == [0, 1]
    assert losses(capsys) == [RECORDS]


def test_journals_that_are_cut_off_are_counted(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """How much was behind the damage, nobody knows."""
    damaged(state / "journal-1")
    assert starts(state) == [1]
    assert losses(capsys) == [JOURNAL]


def test_journals_of_which_nothing_is_left(state: Path) -> None:
    """It is not said that nothing was reported."""
    damaged(state / "journal-1")
    (state / "journal-2").write_bytes(
        MAGIC + encode(Applied(-1.0, "boot", b"")) + encode(Connected(1.0, b""))
    )
    with pytest.raises(StartError) as refusal:
        export(trace_options("--state-dir", state, "-o", state / "trace.json"))
    assert str(refusal.value) == (
        f"nothing in the journals of {state} can be shown; {RECORDS}; {JOURNAL}"
    )
    assert not (state / "trace.json").exists()
