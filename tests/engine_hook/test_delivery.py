"""Delivery over a real socket: late, broken, slow and absent sidecars, and the bounds."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lilo_engine_hook import TimingObserver, wire
from lilo_engine_hook._outbox import MAX_BYTES
from lilo_engine_hook._queue import MAX_EVENTS
from support.operations import Operation
from support.receiver import receiver
from support.reporting import finished, seqs, trainer
from support.sidecar import wait_until


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "timing.sock"


@pytest.fixture
def observer(path: Path) -> Iterator[TimingObserver]:
    timing = TimingObserver(path)
    yield timing
    timing.close()


def times_slept(thread: threading.Thread) -> int:
    """How often it gave up the processor to wait for something."""
    status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
    return int(status.rpartition("\nvoluntary_ctxt_switches:")[2].split()[0])


def test_sidecar_may_start_after_the_trainer(path: Path, observer: TimingObserver) -> None:
    """What was reported before there was a sidecar is delivered when there is one."""
    for seq in range(5):
        observer.begin(Operation("m", seq))
    with receiver(path) as far:
        far.wait_for(lambda: len(far.events) == 5)
        assert seqs(far) == list(range(5))


def test_unacknowledged_events_are_sent_again(path: Path, observer: TimingObserver) -> None:
    """A sidecar that dies before it acknowledges loses nothing: its successor on the same path
    gets every event, numbered as before, within 5 s."""
    with receiver(path, acknowledge=False) as far:
        for seq in range(3):
            observer.begin(Operation("m", seq))
        far.wait_for(lambda: len(far.events) == 3)
    with receiver(path) as far:
        far.wait_for(lambda: len(far.events) == 3, timeout=5)
        observer.begin(Operation("m", 3))
        far.wait_for(lambda: len(far.events) == 4)
        assert seqs(far) == [0, 1, 2, 3]
        assert far.batches[0].first_seq == 1


def test_acknowledged_events_are_let_go(path: Path, observer: TimingObserver) -> None:
    """Only what is not acknowledged is kept and sent again."""
    with receiver(path) as far:
        observer.begin(Operation("m", 0))
        far.wait_for(lambda: far.seen != {})
        assert observer._sender is not None
        sender = observer._sender
        wait_until(lambda: sender.undelivered, lambda count: count == 0)
        far.acknowledge = False
        observer.begin(Operation("m", 1))
        far.wait_for(lambda: len(far.events) == 2)
        far.seen.clear()
        far.hang_up()
        far.wait_for(lambda: len(far.events) == 3)
        assert seqs(far) == [0, 1, 1]


def test_broken_connection_is_replaced(path: Path, observer: TimingObserver) -> None:
    """After a hang-up the hook says hello again with the same boot id, and goes on."""
    with receiver(path) as far:
        observer.begin(Operation("m", 0))
        far.wait_for(lambda: len(far.events) == 1)
        far.hang_up()
        observer.begin(Operation("m", 1))
        far.wait_for(lambda: len(far.events) == 2)
        assert len(far.hellos) == 2
        assert far.hellos[0] == far.hellos[1]


def test_events_beyond_the_bound_are_dropped_and_counted(
    path: Path, observer: TimingObserver
) -> None:
    """Without a sidecar the hook keeps MAX_EVENTS and drops the new ones; when one comes, it
    hears the count beside every event kept, and nothing is dropped any more."""
    total = MAX_EVENTS + 1000
    for seq in range(total):
        observer.begin(Operation("m", seq))
    with receiver(path) as far:
        far.wait_for(lambda: len(far.events) + far.dropped == total)
        assert seqs(far) == list(range(len(far.events)))
        assert MAX_EVENTS - 1 <= len(far.events) <= MAX_EVENTS
        # Once all is acknowledged, and the hook has looked at that.
        wait_until(lambda: observer._queue.room, lambda room: room == MAX_EVENTS)
        observer.begin(Operation("m", total))
        far.wait_for(lambda: seqs(far)[-1] == total)
        assert len(far.events) + far.dropped == total + 1


def test_bytes_are_bounded_as_well(path: Path, observer: TimingObserver) -> None:
    """Large events: at most 16 MiB are held, then new ones are dropped and counted."""
    ids = [f"{'i' * 100}:{n}" for n in range(1000)]
    assert observer._sender is not None
    outbox = observer._sender._outbox
    count = 0
    while outbox.bytes < MAX_BYTES:
        for _ in range(20):
            observer.span("m", "x", "gpu", 1.0, 2.0, request_ids=ids)
        count += 20
        threading.Event().wait(0.01)
    for _ in range(5):
        observer.span("m", "x", "gpu", 1.0, 2.0, request_ids=ids)
    one_event = outbox.bytes / outbox.events
    assert MAX_BYTES <= outbox.bytes <= MAX_BYTES + 2 * one_event
    with receiver(path) as far:
        far.wait_for(lambda: len(far.events) + far.dropped == count + 5, timeout=30)
        assert far.dropped >= 5


def test_reader_that_stops_reading_keeps_its_connection(
    path: Path, observer: TimingObserver
) -> None:
    """A full socket is not a broken one: the hook waits, and goes on with the same connection
    and whole frames."""
    release = threading.Event()
    got: list[int] = []
    connections = 0
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen()

    def read() -> None:
        nonlocal connections
        connection, _ = listener.accept()
        connections += 1
        release.wait(30)
        frames = wire.FrameBuffer()
        with connection:
            while len(got) < 60_000 and (data := connection.recv(65536)):
                for payload in frames.feed(data):
                    message = wire.decode(payload)
                    if isinstance(message, wire.Batch):
                        got.extend(e.seq or 0 for e in message.events if isinstance(e, wire.Begin))

    thread = threading.Thread(target=read)
    thread.start()
    try:
        for seq in range(60_000):
            observer.begin(Operation("m", seq))
    finally:
        release.set()
        thread.join(30)
        listener.close()
    assert got == list(range(60_000))
    assert connections == 1


def test_batch_leaves_without_being_asked(path: Path, observer: TimingObserver) -> None:
    """One event alone is delivered: nobody has to fill a batch or call a flush."""
    with receiver(path) as far:
        observer.begin(Operation("m", 0))
        far.wait_for(lambda: len(far.events) == 1)


def test_answers_wake_nobody(path: Path, observer: TimingObserver) -> None:
    """The hook's thread sleeps until it has something to say, however often the sidecar speaks
    meanwhile: to be woken by each answer would be most of what the trainer pays."""
    with receiver(path, acknowledge=False) as far:
        observer.begin(Operation("m", 0))
        far.wait_for(lambda: len(far.events) == 1)
        far.send(wire.encode(wire.Ack(0)))  # of the hello
        thread = observer._sender.thread if observer._sender is not None else None
        assert thread is not None
        before, spoken = times_slept(thread), 0
        for number in range(1, 16):
            for byte in wire.encode(wire.Ack(number)):
                far.send(bytes([byte]))
                spoken += 1
                time.sleep(0.001)  # enough for who waits for it to have taken it
            observer.begin(Operation("m", number))
            far.wait_for(lambda n=number: len(far.events) == n + 1)  # type: ignore[misc]
        assert times_slept(thread) - before < spoken / 2


def test_stranger_at_the_socket_is_survived(
    path: Path, observer: TimingObserver, caplog: pytest.LogCaptureFixture
) -> None:
    """Something else answers on the path: the hook hangs up, says so, and lives."""
    with receiver(path, acknowledge=False) as far:
        far.wait_for(lambda: len(far.hellos) == 1)
        far.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        far.wait_for(lambda: far.ended == 1)
    assert "does not speak the sidecar's protocol" in caplog.text
    assert observer._sender is not None
    assert observer._sender.thread.is_alive()


def test_directory_that_may_not_be_entered_is_said_once(tmp_path: Path) -> None:
    """No permission for the socket: one warning that names it; calls go on doing nothing."""
    script = """
        import logging
        logging.basicConfig(format="%(message)s", stream=sys.stdout)
        observer.close()
        if os.getuid() == 0:
            os.setuid(65534)
        observer = TimingObserver(observer._path)
        for seq in range(100):
            observer.begin(Operation("m", seq))
            time.sleep(0.005)
        observer.close()
    """
    place = tmp_path / "closed"
    place.mkdir()
    with receiver(place / "timing.sock"):
        place.chmod(0o000)
        out = finished(trainer(script, place / "timing.sock", patient=False, cwd="/"))
        place.chmod(0o700)
    assert out.count("may not connect to the sidecar at") == 1
    assert "events were not delivered at exit" in out
