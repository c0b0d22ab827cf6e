"""`lilo-sidecar trace`: which part of which journals it reads, and where it writes."""

from __future__ import annotations

import itertools
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from lilo_engine_hook import wire
from lilo_sidecar import socket_probe
from lilo_sidecar.errors import StartError
from lilo_sidecar.options_trace import TraceOptions
from lilo_sidecar.state.directory import MAX_TAIL
from lilo_sidecar.state.files import Entry, entries
from lilo_sidecar.state.journal import MAGIC, Applied, Connected, JournalFile
from lilo_sidecar.state.recorder import Recorder
from lilo_sidecar.trace import export
from lilo_sidecar.trace import journal as trace_journal
from lilo_sidecar.trace.journal import read_journals
from lilo_sidecar.web.query import TimingQuery
from support.feed import begin, finish, hello, span
from support.journaled import Client, Clock, begun, killed, open_recorder
from support.sidecar import COMMAND
from support.traces import Trace, trace_options
from support.unreachable import place_of_a_user


def written(state: Path, *arguments: str) -> Trace:
    """What it writes."""
    file = state.with_name("trace.json")
    assert export(trace_options("--state-dir", state, "-o", file, *arguments)) == 0
    return Trace(json.loads(file.read_text())["traceEvents"])


def starts(trace: Trace) -> list[float]:
    """When the executions on the gpu lane began, in Unix seconds."""
    return [each.start / 1e6 for each in trace.on("gpu")]


# --- the command line ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("60", 60), ("60s", 60), ("5m", 300), ("1h", 3600), ("0.5s", 0.5), ("1.5h", 5400)],
)
def test_times(given: str, seconds: float) -> None:
    """Seconds, unless a unit says otherwise."""
    assert trace_options("-o", "f", "--last", given).last == seconds


@pytest.mark.parametrize("given", ["", "0", "-1", "1d", "s", "1e9", "nan", "1 m", "9" * 400])
def test_times_that_are_none(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Are refused, with examples."""
    with pytest.raises(SystemExit):
        trace_options("-o", "f", f"--last={given}")
    assert f"{given!r} is no time such as 60s, 5m or 1h" in capsys.readouterr().err


def test_state_directory_is_that_of_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Named, beside a socket that is named or in the environment, or in the usual place."""
    monkeypatch.delenv("LILO_TIMING_SOCKET", raising=False)
    monkeypatch.setattr(socket_probe, "_runs_beside", lambda default: ())  # somebody's, by chance
    usual = f"/tmp/lilo-timing-{os.getuid()}/timing.state"
    assert trace_options("-o", "f") == TraceOptions(Path(usual), 60.0, "f", None)
    monkeypatch.setenv("LILO_TIMING_SOCKET", "/run/a.sock")
    assert trace_options("-o", "f").state_dir == Path("/run/a.state")
    assert trace_options("-o", "f", "--socket", "/b.sock").state_dir == Path("/b.state")
    assert trace_options("-o", "f", "--state-dir", "/c", "--model", "m").state_dir == Path("/c")


def test_it_takes_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    """As `serve` takes none."""
    with pytest.raises(SystemExit):
        trace_options("-o", "f", "--", "true")
    assert "trace takes no command" in capsys.readouterr().err


# --- what it reads ------------------------------------------------------------------------------


def test_it_reads_all_journals_and_each_event_once(tmp_path: Path) -> None:
    """Of a sidecar that runs, that was killed before, and that was sent a batch again; what is
    torn costs what was torn."""
    state = tmp_path / "state"
    recorder, engine = begun(state)
    killed(recorder)
    recorder = open_recorder(state, Clock())
    engine.greet(recorder)
    engine.sent = 0  # it was not acknowledged
    engine.send(recorder, span(["m"], 0, 1), span(["m"], 1, 2))
    recorder._begin()
    with (state / "journal-2").open("ab") as torn:
        torn.write(b"torn")
    engine.send(recorder, span(["m"], 2, 3))
    assert starts(written(state, "--last", "1h")) == [0, 1, 2]
    assert recorder.status.writing


def test_it_changes_nothing(tmp_path: Path) -> None:
    """No file, no time of a change, no lock: neither while the sidecar runs nor after its end."""
    state = tmp_path / "state"
    recorder, engine = begun(state)
    recorder._begin()
    engine.send(recorder, span(["m"], 1, 2))

    def seen() -> dict[str, tuple[bytes, int]]:
        return {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in state.iterdir()}

    before, changed = seen(), state.stat().st_mtime_ns
    written(state)
    assert (seen(), state.stat().st_mtime_ns) == (before, changed)
    killed(recorder)
    written(state)
    assert (seen(), state.stat().st_mtime_ns) == (before, changed)
    assert open_recorder(state, Clock()).status.writing


def spread(state: Path) -> Recorder:
    """A sidecar that heard of an execution of a second at 1000, 1100 and 1200 each."""
    clock, engine = Clock(), Client(hello())
    recorder = open_recorder(state, clock)
    engine.greet(recorder)
    for t in (1000, 1100, 1200):
        clock.now = t + 1
        engine.send(recorder, span(["m"], t, t + 1))
        recorder._begin()
    return recorder


@pytest.mark.parametrize(("last", "wanted"), [("50s", 1), ("150", 2), ("1h", 3)])
def test_the_last_is_counted_from_the_last_that_was_reported(
    tmp_path: Path, last: str, wanted: int
) -> None:
    """Readers that still ask, and the time since, do not count."""
    recorder = spread(tmp_path / "state")
    clock = recorder._clock
    assert isinstance(clock, Clock)
    clock.now = 9000.0
    recorder.timing(TimingQuery("m", reset=True))
    trace = written(tmp_path / "state", "--last", last)
    assert starts(trace) == [1000, 1100, 1200][-wanted:]


def test_stderr_says_what_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """How much of what, until when, and how far back the journals reach."""
    spread(tmp_path / "state")
    written(tmp_path / "state", "--last", "120s")
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("lilo-sidecar: 4 slices, 1 model, 120.0 s until 1970-01-01 00:20:01 UTC")
    written(tmp_path / "state", "--last", "1h", "--model", "n")
    first, *rest = capsys.readouterr().err.splitlines()
    assert first.startswith("lilo-sidecar: 3 slices, 0 models, 200.0 s until")
    assert rest == [
        "lilo-sidecar: the journals reach no further back than these 200.0 s",
        "lilo-sidecar: nothing of model 'n' is in it; is that its id?",
    ]


def test_slices_that_are_left_out_are_told_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Here one that ended before it began."""
    recorder, engine = begun(tmp_path / "state")
    engine.send(recorder, span(["m"], 3, 2))
    written(tmp_path / "state", "--last", "1h")
    assert "2 slices are left out" in capsys.readouterr().err.splitlines()[-1]


def test_journals_that_go_meanwhile_are_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest goes between the listing and the reading; or all of them do, and others come."""
    recorder = spread(tmp_path / "state")
    looks = 0

    def listed(directory: Path) -> list[Entry]:
        nonlocal looks
        looks += 1
        found = entries(directory)
        if looks == 1:
            for number in removed:
                (directory / f"journal-{number}").unlink()
        return found

    monkeypatch.setattr(trace_journal, "entries", listed)
    removed = [1]
    assert starts(written(tmp_path / "state", "--last", "1h")) == [1100, 1200]
    assert looks == 1
    looks, removed = 0, [2, 3, 4]
    with pytest.raises(StartError, match="there is no journal in"):
        read_journals(tmp_path / "state")
    assert looks == 2
    assert recorder.status.writing


def test_what_is_none_of_ours_is_not_read(tmp_path: Path) -> None:
    """Pipes and links by the name of a journal, and what is set aside."""
    state = tmp_path / "state"
    spread(state)
    os.mkfifo(state / "journal-90")
    (state / "journal-91").symlink_to(state / "journal-1")
    (state / "journal-92.aside").write_bytes((state / "journal-1").read_bytes())
    (state / "journal-93").write_bytes(b"not ours")
    assert starts(written(state, "--last", "1h")) == [1000, 1100, 1200]


def test_what_is_read_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what a state directory may have; of more, the latest is read."""
    spread(tmp_path / "state")
    size = (tmp_path / "state" / "journal-3").stat().st_size
    monkeypatch.setattr(trace_journal, "MAX_BYTES", len(MAGIC) + size + 10)
    journals = read_journals(tmp_path / "state")
    assert [len(journal) for journal in journals] == [10, size, len(MAGIC)]


MEASURED = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stderr=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
"""Runs a command, and says how many KiB of memory it took. A process begins with the figure of the
one that starts it: that is this one, and not the tests'."""


def peak(state: Path) -> tuple[int, int]:
    """Bytes of memory that it takes to trace all there is, and bytes of the trace."""
    file = state.with_name("trace.json")
    command = [*COMMAND, "trace", "--state-dir", str(state), "-o", str(file), "--last", "24h"]
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *command], stdout=subprocess.PIPE, text=True, check=True
    )
    return int(done.stdout) * 1024, file.stat().st_size


def test_memory_is_that_of_the_journal(tmp_path: Path) -> None:
    """And of a few numbers for each command, not of the trace, which is written as it is made:
    three times a journal's size is a third of that."""
    path = tmp_path / "state"
    small = begun(path)[0]
    killed(small)
    least, _ = peak(path)
    (path / "journal-1").unlink()
    file, engine = JournalFile(path / "journal-1"), Client(hello())
    file.append(Connected(0.0, wire.encode(engine.who)[4:]))
    for number in itertools.count():
        if file.size > MAX_TAIL:
            break
        sent: list[bytes] = []
        for t in range(100 * number, 100 * number + 100):
            model = f"m-{t % 20}"
            work = span([model], t, t + 1, ids=[f"{model}:{t}"], n=1, ok=True)
            for event in (begin(model, t, t), work, finish(model, t, t + 1)):
                sent.append(wire.encode_event(event))
        batch = wire.encode_batch(engine.sent + 1, 0, 0, wire.join(sent))[4:]
        engine.sent += len(sent)
        file.append(Applied(0.0, "boot", batch))
    most, trace = peak(path)
    assert trace > 3 * file.size
    assert most - least < 3 * file.size + 5 * 2**20


# --- what it says instead -----------------------------------------------------------------------


def refused(state: Path, *arguments: str | Path) -> str:
    """Why it writes nothing."""
    with pytest.raises(StartError) as refusal:
        export(trace_options("--state-dir", state, "-o", state.parent / "f", *arguments))
    return str(refusal.value)


def test_directory_that_is_not_there(tmp_path: Path) -> None:
    """It is not made; the message says how to name the right one."""
    reason = refused(tmp_path / "nowhere")
    assert reason == (
        f"there is no state directory {tmp_path / 'nowhere'}; name the sidecar's with --socket or "
        "--state-dir"
    )
    assert list(tmp_path.iterdir()) == []


def test_directory_without_a_journal(tmp_path: Path) -> None:
    """The sidecar goes on in memory, say: its empty journal is none."""
    (tmp_path / "journal-1").touch()
    assert "there is no journal in" in refused(tmp_path)
    assert "/healthz" in refused(tmp_path)


def test_journal_of_which_nothing_is_reported_yet(tmp_path: Path) -> None:
    """A sidecar that no trainer has found so far."""
    open_recorder(tmp_path / "state", Clock())
    assert "no trainer has reported anything yet" in refused(tmp_path / "state")
    assert not (tmp_path / "f").exists()


def test_directory_that_may_not_be_read() -> None:
    """The message says as whom to run this; of what is no directory, what it is."""
    with place_of_a_user() as place:
        state = place / "state"
        killed(begun(state)[0])
        (state / "journal-1").chmod(0)
        hint = "cannot be read: Permission denied; run this as the user whose sidecar it is"
        assert refused(state) == f"{state / 'journal-1'} {hint}"
        state.chmod(0)
        assert refused(state) == f"{state} {hint}"
        state.chmod(0o700)
        for file in state.iterdir():
            file.unlink()
        state.rmdir()
        state.touch()
        assert refused(state) == f"{state} cannot be read: Not a directory"


def test_output_that_cannot_be_written(tmp_path: Path) -> None:
    """Another directory, or a full disk."""
    spread(tmp_path / "state")
    reason = refused(tmp_path / "state", "-o", tmp_path)
    assert reason == f"{tmp_path} cannot be written: Is a directory"
    reason = refused(tmp_path / "state", "-o", "/dev/full")
    assert reason == "/dev/full cannot be written: No space left on device"


def test_trace_is_for_this_user_alone(tmp_path: Path) -> None:
    """It names models. One that is there is written anew, and no more of it is left."""
    spread(tmp_path / "state")
    before = os.umask(0)
    try:
        written(tmp_path / "state", "--last", "1h")
    finally:
        os.umask(before)
    file = tmp_path / "trace.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    size = file.stat().st_size
    written(tmp_path / "state", "--last", "1s")
    assert file.stat().st_size < size
