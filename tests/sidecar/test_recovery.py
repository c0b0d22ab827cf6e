"""A sidecar that ends at any moment goes on from its journal: the same answers, to the byte."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from lilo_engine_hook import wire
from lilo_sidecar.core.critical_path import CriticalPath
from lilo_sidecar.core.cursor import Cursor
from lilo_sidecar.core.timing import IntervalTiming
from lilo_sidecar.state import directory as state_directory
from lilo_sidecar.state import recorder as recording
from lilo_sidecar.state.directory import (
    MAX_BYTES,
    MAX_JOURNALS_BACK,
    MAX_LOOK_BACK,
    MAX_OVERDUE,
    MAX_TAIL,
)
from lilo_sidecar.state.files import write_file
from lilo_sidecar.state.journal import MAGIC, MAX_RECORD, Applied, Connected, encode, read_records
from lilo_sidecar.state.recorder import Recorder
from lilo_sidecar.state.recovery import replay
from lilo_sidecar.state.snapshot import MAX_SNAPSHOT, dump, load
from lilo_sidecar.web.query import TimingQuery
from support.feed import Feed, hello, span
from support.journaled import Client, Clock, Traffic, answers, killed, open_recorder


def test_answers_after_a_kill_are_the_same_to_the_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At many moments of many random histories, with journals of a few records up to all of
    them; and once more after that."""
    for seed in range(30):
        monkeypatch.setattr(recording, "_MIN_TAIL", (400, 3000, 1 << 20)[seed % 3])
        monkeypatch.setattr(recording, "MAX_TAIL", (400, 3000, 1 << 20)[seed % 3])
        path, clock, traffic = tmp_path / str(seed), Clock(), Traffic(seed)
        recorder = open_recorder(path, clock)
        traffic.greet(recorder)
        for _ in range(120):
            traffic.step(recorder)
            if traffic.random.randrange(12):
                continue
            connected = recorder.health().producers
            recorder._core.disconnect_all(0.0)  # as they find themselves after the kill
            before = answers(recorder, traffic.models)
            killed(recorder)
            recorder = open_recorder(path, clock)
            assert recorder.status == (True, None)
            assert answers(recorder, traffic.models) == before
            assert recorder.health().producers == 0
            if connected:
                traffic.greet(recorder)
        recorder.close()


def test_same_history_makes_the_same_state() -> None:
    """Nothing of it depends on the process: not on hashes, addresses, or the time of day."""
    states = []
    for _ in range(2):
        clock, traffic = Clock(), Traffic(7, size=100)
        recorder = Recorder(CriticalPath("abc"), None, clock)
        traffic.greet(recorder)
        for _ in range(200):
            traffic.step(recorder)
        states.append(dump(recorder._core))
    assert states[0] == states[1]
    assert dump(load(states[0])) == states[0]


def test_journal_cut_at_every_byte_of_its_last_records(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The state is that of the last whole record; one line says what was cut off."""
    clock, traffic = Clock(), Traffic(3)
    recorder = open_recorder(tmp_path / "state", clock)
    traffic.greet(recorder)
    for _ in range(40):
        traffic.step(recorder)
    (snapshot,) = (tmp_path / "state").glob("snapshot-*")
    (journal,) = (tmp_path / "state").glob("journal-*")
    content = journal.read_bytes()
    records = list(read_records(content))
    ends = [len(MAGIC)]
    for record in records:
        ends.append(ends[-1] + len(encode(record)))
    expected: dict[int, str] = {}
    for size in range(ends[-6], len(content)):
        whole = sum(end <= size for end in ends) - 1
        if whole not in expected:
            core = load(snapshot.read_bytes())
            replay(core, content[: ends[whole]])
            expected[whole] = answers(Recorder(core, None, clock), traffic.models)
        core = load(snapshot.read_bytes())
        caplog.clear()
        assert replay(core, content[:size]) == whole
        assert answers(Recorder(core, None, clock), traffic.models) == expected[whole]
        lines = [f"the journal is cut off after {whole} records: its last"] * (size not in ends)
        assert [message[: len(lines[0])] for message in caplog.messages] == lines


def test_sidecar_goes_on_from_a_torn_journal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What was cut off is missed, and counted, once its producer goes on."""
    clock, engine = Clock(), Client(hello())
    recorder = open_recorder(tmp_path / "state", clock)
    engine.greet(recorder)
    engine.send(recorder, span(["m"], 0, 1))
    engine.send(recorder, span(["m"], 1, 2), span(["m"], 2, 3))
    killed(recorder)
    (journal,) = (tmp_path / "state").glob("journal-*")
    journal.write_bytes(journal.read_bytes()[:-3])
    recorder = open_recorder(tmp_path / "state", clock)
    assert [r.levelname for r in caplog.records if "cut off" in r.message] == ["WARNING"]
    engine.greet(recorder)
    assert recorder.acked("boot") == 1
    engine.send(recorder, span(["m"], 3, 4))
    answer = recorder.timing(TimingQuery("m"))
    assert answer.phases["forward_backward.execute"].count == 2
    delivery = answer.delivery
    assert (delivery.sent, delivery.applied, delivery.dropped, delivery.missed) == (4, 2, 2, 2)
    assert not answer.interval.complete


def test_batches_that_come_again_after_a_kill_count_once(tmp_path: Path) -> None:
    """The hook resends what was not acknowledged; the journal may have it."""
    clock, engine = Clock(), Client(hello())
    recorder = open_recorder(tmp_path / "state", clock)
    engine.greet(recorder)
    engine.send(recorder, span(["m"], 0, 1))
    killed(recorder)
    recorder = open_recorder(tmp_path / "state", clock)
    engine.greet(recorder)
    engine.sent = 0
    assert engine.send(recorder, span(["m"], 0, 1), span(["m"], 1, 2)) == 2
    answer = recorder.timing(TimingQuery("m"))
    assert answer.phases["forward_backward.execute"].count == 2
    assert answer.delivery.sent == answer.delivery.applied == 2


def test_kill_between_snapshot_and_journal_loses_nothing(tmp_path: Path) -> None:
    """The new journal is there, its snapshot is not yet."""
    clock, engine = Clock(), Client(hello())
    recorder = open_recorder(tmp_path / "state", clock)
    engine.greet(recorder)
    engine.send(recorder, span(["m"], 0, 1))
    before = answers(recorder, ["m"])
    killed(recorder)
    (tmp_path / "state" / "snapshot-2.new").write_bytes(b"half of one")
    (tmp_path / "state" / "journal-2").write_bytes(MAGIC)
    recorder = open_recorder(tmp_path / "state", clock)
    assert answers(recorder, ["m"]) == before


def test_directory_stays_under_its_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every moment, also while a snapshot takes the place of another: here with bounds of a
    hundredth, and a look at the directory after every write."""
    monkeypatch.setattr(recording, "_MIN_TAIL", MAX_TAIL // 100)
    monkeypatch.setattr(recording, "MAX_TAIL", MAX_TAIL // 100)
    monkeypatch.setattr("lilo_sidecar.state.directory.MAX_LOOK_BACK", MAX_LOOK_BACK // 100)
    path = tmp_path / "state"
    peak = 0

    def look() -> None:
        nonlocal peak
        peak = max(peak, sum(file.stat().st_size for file in path.iterdir()))

    def write(name: Path, data: bytes) -> None:
        write_file(name, data)
        look()

    monkeypatch.setattr("lilo_sidecar.state.directory.write_file", write)
    clock, engine = Clock(), Client(hello())
    recorder = open_recorder(path, clock)
    engine.greet(recorder)
    for number in range(3000):
        engine.send(recorder, *(span([f"m{number % 50}"], number, number + 1) for _ in range(10)))
        look()
    names = {file.name.partition("-")[0] for file in path.iterdir()}
    assert names == {"journal", "lock", "snapshot"}
    sizes = [len(dump(recorder._core)), MAX_TAIL // 100 + 2000]
    earlier = sorted(path.glob("journal-*"), key=number_of)[:-1]
    kept = sum(file.stat().st_size for file in earlier)
    assert MAX_LOOK_BACK // 100 - sizes[1] < kept <= MAX_LOOK_BACK // 100
    assert peak <= 2 * sum(sizes) + MAX_LOOK_BACK // 100
    longest = MAX_TAIL + MAX_OVERDUE + MAX_RECORD + 12
    assert 2 * (MAX_SNAPSHOT + 100) + 2 * longest <= MAX_BYTES


def number_of(file: Path) -> int:
    """Of its generation."""
    return int(file.name.partition("-")[2])


def test_older_journals_are_kept_for_looking_back(tmp_path: Path) -> None:
    """So that there are always the last minutes to be seen."""
    clock, engine = Clock(), Client(hello())
    recorder = open_recorder(tmp_path / "state", clock)
    engine.greet(recorder)
    engine.send(recorder, span(["m"], 0, 1))
    recorder._begin()
    engine.send(recorder, span(["m"], 1, 2))
    recorder._begin()
    journals = sorted((tmp_path / "state").glob("journal-*"))
    kinds = [[type(r) for r in read_records(path.read_bytes())] for path in journals]
    assert kinds == [[Connected, Applied], [Applied], []]


def test_older_journals_are_bounded_in_number(tmp_path: Path) -> None:
    """A sidecar that is started again and again leaves small ones; the oldest go."""
    clock, path = Clock(), tmp_path / "state"
    for _ in range(2 * MAX_JOURNALS_BACK):
        killed(open_recorder(path, clock))
    left = sorted(map(number_of, path.glob("journal-*")))
    assert left == list(range(MAX_JOURNALS_BACK, 2 * MAX_JOURNALS_BACK + 1))


def test_older_journals_go_where_there_is_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest first, and no more than have to: here there is room for one of three."""
    clock, path, engine = Clock(), tmp_path / "state", Client(hello())
    recorder = open_recorder(path, clock)
    engine.greet(recorder)
    for number in range(4):
        engine.send(recorder, span(["m"] * 200, number, number + 1))
        recorder._begin()
    size = (path / "journal-2").stat().st_size
    snapshots = len(dump(recorder._core)) + (path / "snapshot-5").stat().st_size
    present = (path / "journal-5").stat().st_size
    monkeypatch.setattr(
        "lilo_sidecar.state.directory.MAX_BYTES",
        snapshots + present + 2 * size - 1 + state_directory._MAX_JOURNAL,
    )
    recorder._begin()
    assert recorder.status.writing
    assert sorted(map(number_of, path.glob("journal-*"))) == [4, 5, 6]


def test_state_of_another_version_is_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is kept for people to look at, never read again, and goes where there is no room."""
    clock, path = Clock(), tmp_path / "state"
    recorder = open_recorder(path, clock)
    Client(hello()).greet(recorder)
    killed(recorder)
    (snapshot,) = path.glob("snapshot-*")
    heading, _, state = snapshot.read_bytes().partition(b"\n")
    snapshot.write_bytes(heading[:-1] + b"?" + b"\n" + state)
    caplog.set_level(logging.INFO)
    recorder = open_recorder(path, clock)
    assert recorder.status.writing
    assert recorder.health().last_heard is None
    assert any("another version" in message for message in caplog.messages)
    assert sorted(file.name for file in path.glob("*.aside")) == [
        "journal-1.aside",
        "snapshot-1.aside",
    ]
    (path / "snapshot-1.aside").write_bytes(bytes(MAX_BYTES))
    recorder._begin()
    assert not (path / "snapshot-1.aside").exists()


@pytest.mark.parametrize("damage", [b"", b"lilo-timing snapshot \n", None])
def test_damaged_snapshot_is_set_aside(
    tmp_path: Path, damage: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    """The sidecar begins anew, and says so."""
    clock, path = Clock(), tmp_path / "state"
    caplog.set_level(logging.INFO)
    killed(open_recorder(path, clock))
    (snapshot,) = path.glob("snapshot-*")
    content = snapshot.read_bytes()
    snapshot.write_bytes(content[:-1] + b"?" if damage is None else damage)
    recorder = open_recorder(path, clock)
    assert recorder.status.writing
    assert any("set aside" in message for message in caplog.messages)


def test_fault_in_one_record_leaves_the_others(caplog: pytest.LogCaptureFixture) -> None:
    """What cannot be done again, for whatever reason, is left out and told of."""
    core = CriticalPath()
    feed = Feed(core)
    packed = wire.encode_batch(1, 0, 0, wire.join([wire.encode_event(span(["m"], 0, 1))]))[4:]
    journal = MAGIC + b"".join(
        map(encode, (Applied(0.0, "nobody", packed), Applied(0.0, "boot", packed)))
    )
    assert replay(core, journal) == 2
    assert feed.timing("m").phases["forward_backward.execute"].count == 1
    (message,) = caplog.messages
    assert message.startswith(
        "a record (Applied) of the journal failed and is left out: KeyError at"
    )
    assert "nobody" not in message


def test_state_beside_the_socket_of_another_start(tmp_path: Path) -> None:
    """A new trainer takes the place of the one that the journal tells of."""
    clock = Clock()
    recorder = open_recorder(tmp_path / "state", clock)
    old = Client(hello("old"))
    old.greet(recorder)
    old.send(recorder, span(["m"], 0, 1))
    recorder.close()
    shutil.copytree(tmp_path / "state", tmp_path / "moved")
    recorder = open_recorder(tmp_path / "moved", clock)
    assert recorder.timing(TimingQuery(None)).phases
    new = Client(hello("new"))
    (ended,) = recorder.connect(new.who, wire.encode(new.who)[4:])
    assert ended.phases["forward_backward.execute"].count == 1
    assert recorder.timing(TimingQuery(None)).phases == {}


def asked(recorder: Recorder, reader: str, ack: Cursor | None = None) -> IntervalTiming:
    """An interval of the model's, ended for a reader."""
    return recorder.timing(TimingQuery("m", True, reader, ack)).interval


def cursor(interval: IntervalTiming) -> Cursor:
    """What the reader passes back."""
    found = Cursor.parse(str(interval.cursor))
    assert found is not None
    return found


@pytest.mark.parametrize("torn", [False, True])
def test_cursors_of_records_that_were_cut_off_are_never_given_again(
    tmp_path: Path, torn: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Damage took questions that had been answered: every reader is told of a hole, and their
    cursors are nobody else's, also after the next kill. A question that was not written whole was
    never answered: nobody hears of it but the log."""
    path, clock, engine = tmp_path / "state", Clock(), Client(hello())
    recorder = open_recorder(path, clock)
    engine.greet(recorder)
    engine.send(recorder, span(["m"], 0, 1))
    first = cursor(asked(recorder, "first"))
    size = (path / "journal-1").stat().st_size
    lost = [cursor(asked(recorder, name)) for name in ("second", "third")]
    engine.send(recorder, span(["m"], 1, 2))
    killed(recorder)
    content = bytearray((path / "journal-1").read_bytes())
    if torn:
        content = content[: size + 20]
    else:
        content[size + 3] ^= 0x10  # a longer record, which would reach behind the end
    (path / "journal-1").write_bytes(content)
    recorder = open_recorder(path, clock)
    (line,) = [r for r in caplog.records if "cut off" in r.message]
    assert line.levelname == "WARNING"
    before = answers(recorder, ["m"])
    killed(recorder)
    recorder = open_recorder(path, clock)
    assert answers(recorder, ["m"]) == before
    engine.greet(recorder)
    fresh = [asked(recorder, name) for name in ("fourth", "fifth")]
    known = asked(recorder, "first", first)
    if torn:
        assert known.complete
        return
    assert not {cursor(interval) for interval in fresh} & set(lost)
    assert not asked(recorder, "second", lost[0]).complete
    assert not asked(recorder, "third", lost[1]).complete
    assert not known.complete
