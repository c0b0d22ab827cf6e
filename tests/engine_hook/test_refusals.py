"""What a sidecar does not take: counted once, by the sidecar, from the gap in the numbering."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lilo_engine_hook import TimingObserver, wire
from support.logs import logged
from support.operations import Operation
from support.receiver import Receiver, receiver
from support.reporting import seqs
from support.sidecar import wait_until


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "timing.sock"


@pytest.fixture
def far(path: Path) -> Iterator[Receiver]:
    """A sidecar that has greeted the observer and says nothing by itself."""
    with receiver(path, acknowledge=False) as far_end:
        yield far_end


@pytest.fixture
def observer(path: Path, far: Receiver) -> Iterator[TimingObserver]:
    timing = TimingObserver(path)
    far.wait_for(lambda: len(far.hellos) == 1)
    acknowledge(far, 0)
    yield timing
    far.acknowledge = True
    far.hang_up()
    timing.close()


def acknowledge(far: Receiver, seq: int) -> None:
    far.send(wire.encode(wire.Ack(seq)))


def refuse(far: Receiver, code: str = "field", reason: str = "seq_id is odd") -> None:
    """Refuse what came last, and wait for the next connection."""
    before = len(far.hellos)
    far.send(wire.encode(wire.Refusal(code, reason)))
    far.wait_for(lambda: len(far.hellos) == before + 1)


def gaps(far: Receiver) -> int:
    """Numbers skipped, as the sidecar counts them."""
    heard = skipped = 0
    for batch in far.batches:
        skipped += max(0, batch.first_seq - heard - 1)
        heard = max(heard, batch.first_seq + len(batch.events) - 1)
    return skipped


def test_refused_batch_is_a_gap_that_is_told_though_nothing_follows(
    far: Receiver, observer: TimingObserver, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not sent for ever: the next number goes to the sidecar without an event. The hook
    counts nothing itself, or the sidecar would count it twice; the log says why."""
    observer.begin(Operation("m", 0))
    far.wait_for(lambda: len(far.events) == 1)
    far.batches.clear()  # refused: the sidecar does not have it
    refuse(far)
    acknowledge(far, 0)
    far.wait_for(lambda: len(far.batches) == 1)
    assert far.batches == [wire.Batch(2, 0, 0, ())]
    assert "refused a batch of 1 events: seq_id is odd" in caplog.text
    acknowledge(far, 1)
    observer.begin(Operation("m", 1))
    far.wait_for(lambda: len(far.batches) == 2)
    assert (seqs(far), far.batches[1].first_seq, far.dropped) == ([1], 2, 0)
    assert gaps(far) == 1


def test_gap_is_told_once_per_connection(far: Receiver, observer: TimingObserver) -> None:
    """Until the sidecar confirms it, and again where the connection was lost meanwhile."""
    observer.begin(Operation("m", 0))
    far.wait_for(lambda: len(far.events) == 1)
    far.batches.clear()
    refuse(far)
    for connection in (1, 2):
        acknowledge(far, 0)
        far.wait_for(lambda: len(far.batches) == 1)
        threading.Event().wait(0.1)  # more would come within two looks into the queue
        assert far.batches == [wire.Batch(2, 0, 0, ())], connection
        far.batches.clear()
        far.hang_up()
        far.wait_for(lambda: len(far.hellos) == 2 + connection)  # noqa: B023
    acknowledge(far, 1)
    observer.begin(Operation("m", 1))
    # It hears of the gap once more, maybe, and of the event, which has its number all the same.
    far.wait_for(lambda: len(far.events) == 1)
    assert {batch.first_seq for batch in far.batches} == {2}


def test_refusal_of_a_later_batch_costs_that_one(far: Receiver, observer: TimingObserver) -> None:
    """What was acknowledged before it is not let go of again."""
    observer.begin(Operation("m", 0))
    far.wait_for(lambda: len(far.events) == 1)
    observer.begin(Operation("m", 1))
    far.wait_for(lambda: len(far.events) == 2)
    far.batches.pop()
    acknowledge(far, 1)
    refuse(far)
    observer.begin(Operation("m", 2))
    acknowledge(far, 1)
    far.wait_for(lambda: len(far.events) == 2)
    assert seqs(far) == [0, 2]
    assert (far.dropped, gaps(far)) == (0, 1)


def test_refused_batch_that_was_applied_all_the_same_is_not_lost(
    far: Receiver, observer: TimingObserver
) -> None:
    """The sidecar has it, as its next answer to a hello says: there is no gap, and nobody counts
    one."""
    observer.begin(Operation("m", 0))
    far.wait_for(lambda: len(far.events) == 1)
    refuse(far)
    acknowledge(far, 1)
    observer.begin(Operation("m", 1))
    far.wait_for(lambda: len(far.events) == 2)
    assert (seqs(far), far.dropped, gaps(far)) == ([0, 1], 0, 0)


def test_sidecar_that_lost_its_state_hears_what_it_missed(path: Path) -> None:
    """Though nothing else is to be said: it can count the events its predecessor had."""
    observer = TimingObserver(path)
    with receiver(path) as first:
        for seq in range(3):
            observer.begin(Operation("m", seq))
        first.wait_for(lambda: len(first.events) == 3)
        sender = observer._sender
        assert sender is not None
        wait_until(lambda: sender.undelivered, lambda count: count == 0)
    with receiver(path) as second:
        second.wait_for(lambda: len(second.batches) == 1)
        assert second.batches == [wire.Batch(4, 0, 0, ())]
    observer.close()


def test_refused_hello_is_said_once_and_not_hammered(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A sidecar of another version: one warning, and no knocking at its door in a loop."""
    with receiver(path, acknowledge=False) as far:
        observer = TimingObserver(path)
        far.wait_for(lambda: len(far.hellos) == 1)
        refused = time.monotonic()
        far.send(wire.encode(wire.Refusal("version", "speak version 9")))
        far.wait_for(lambda: far.ended == 1)
        sender = observer._sender
        assert sender is not None
        retry_at = wait_until(lambda: sender._retry_at, lambda at: at > refused)
        assert retry_at - refused > 5
    (warning,) = [r for r in logged(caplog) if r.levelno >= logging.WARNING]
    assert "speak version 9" in warning.getMessage()
    observer.close()


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("code", ["busy", "peer", "version", "message", "fault"])
def test_no_batch_is_to_blame_for_a_refused_hello(path: Path, code: str) -> None:
    """A refusal before the hello was answered, whatever its word, costs no event; and a trainer
    that ends does not wait for the pause after it."""
    with receiver(path, acknowledge=False) as far:
        observer = TimingObserver(path)
        observer.begin(Operation("m", 0))
        far.wait_for(lambda: len(far.events) == 1)
        far.batches.clear()
        far.seen.clear()
        far.send(wire.encode(wire.Refusal(code, "not now")))
        far.wait_for(lambda: far.ended == 1)
        far.acknowledge = True
        observer.close()
        assert (seqs(far), gaps(far)) == ([0], 0)


def test_number_that_no_event_has_is_not_taken_for_an_acknowledgement(
    far: Receiver, observer: TimingObserver, caplog: pytest.LogCaptureFixture
) -> None:
    """The sidecar would pass over what is numbered below: that loss would be silent. The hook
    hangs up, keeps the events, and says so, at the end as well."""
    observer.begin(Operation("m", 0))
    far.wait_for(lambda: len(far.events) == 1)
    acknowledge(far, 1000)
    far.wait_for(lambda: far.ended == 1)
    assert "it acknowledges event 1000, and there are 1" in caplog.text
    observer.close()
    assert "1 events were not delivered at exit" in caplog.text


@pytest.mark.usefixtures("patient")
def test_close_waits_until_the_counts_are_heard(far: Receiver, observer: TimingObserver) -> None:
    """Not only the events: a count that went under with the connection would be missing in the
    sidecar's."""
    observer.span(object(), "x", "gpu", 1.0, 2.0)  # type: ignore[arg-type]
    closing = threading.Thread(target=observer.close)
    closing.start()
    far.wait_for(lambda: far.rejected == 1)
    closing.join(0.2)  # it looks five times meanwhile
    assert closing.is_alive()
    acknowledge(far, 0)
    closing.join(10)
    assert not closing.is_alive()


@pytest.mark.parametrize("received", [2, 30, 5000, 100_000])
def test_frame_that_broke_off_is_sent_again_whole(path: Path, received: int) -> None:
    """The connection is lost in the middle of a message: the next one begins with a hello, and
    every event arrives once."""
    with receiver(path, acknowledge=False, hang_up_after=received) as far:
        observer = TimingObserver(path)
        for seq in range(5000):
            observer.begin(Operation("m", seq))
        far.wait_for(lambda: far.ended == 1)
        far.acknowledge = True
        far.wait_for(lambda: len(far.events) == 5000)
        observer.close()
        assert (seqs(far), gaps(far)) == (list(range(5000)), 0)
