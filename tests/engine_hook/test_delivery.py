"""Delivery over a real socket: late, broken, slow and absent sidecars; bounds; exits; forks."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lilo_engine_hook import TimingObserver, wire
from lilo_engine_hook._outbox import MAX_BYTES
from lilo_engine_hook._queue import MAX_EVENTS
from support.operations import Operation
from support.receiver import Receiver, receiver
from support.sidecar import wait_until


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "timing.sock"


@pytest.fixture
def observer(path: Path) -> Iterator[TimingObserver]:
    timing = TimingObserver(path)
    yield timing
    timing.close()


def seqs(far: Receiver) -> list[int | None]:
    """The sequence ids of the begins received."""
    return [event.seq for event in far.events if isinstance(event, wire.Begin)]


def trainer(script: str, path: Path, **kwargs: object) -> subprocess.Popen[str]:
    """A process that reports to ``path``; ``script`` finds an `observer` and an `Operation`."""
    head = f"""
        import os, sys, time
        sys.path.insert(0, {str(Path(__file__).parents[1])!r})
        from support.operations import Operation
        from lilo_engine_hook import TimingObserver
        observer = TimingObserver({str(path)!r})
    """
    process: subprocess.Popen[str] = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(head) + textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **kwargs,  # type: ignore[call-overload]
    )
    return process


def finished(process: subprocess.Popen[str]) -> str:
    """Its output; fails unless it exits with 0 and a silent stderr."""
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")
    return out


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
        far.wait_for(lambda: len(far.events) == 2, timeout=5)
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
        far.wait_for(lambda: observer._sender is not None and not observer._sender.undelivered)
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
        far.wait_for(lambda: len(far.events) == 1, timeout=2)


def test_refused_batch_is_dropped_counted_and_said(
    path: Path, observer: TimingObserver, caplog: pytest.LogCaptureFixture
) -> None:
    """A batch the sidecar will not take is not sent for ever: it is dropped, counted, the log
    says why, and what follows is delivered."""
    with receiver(path, acknowledge=False) as far:
        observer.begin(Operation("m", 0))
        far.wait_for(lambda: len(far.events) == 1)
        far.acknowledge = True
        far.seen.clear()
        far.send(wire.encode(wire.Refusal("field", "seq_id is odd")))
        far.wait_for(lambda: len(far.hellos) == 2)
        observer.begin(Operation("m", 1))
        far.wait_for(lambda: len(far.events) == 2)
        far.wait_for(lambda: far.dropped == 1)
        assert seqs(far) == [0, 1]
    assert "refused a batch of 1 events: seq_id is odd" in caplog.text


def test_refused_hello_is_said_once_and_not_hammered(
    path: Path, observer: TimingObserver, caplog: pytest.LogCaptureFixture
) -> None:
    """A sidecar of another version: one warning, and no knocking at its door in a loop."""
    with receiver(path, acknowledge=False) as far:
        far.wait_for(lambda: len(far.hellos) == 1)
        far.send(wire.encode(wire.Refusal("version", "speak version 9")))
        far.wait_for(lambda: far.ended == 1)
        sender = observer._sender
        assert sender is not None
        wait_until(lambda: sender._retry_at - time.monotonic(), lambda left: left > 5)
    warnings = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert [w for w in warnings if "speak version 9" in w.getMessage()] == warnings


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


def test_directory_that_may_not_be_entered_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No permission for the socket: one warning that names it; calls go on doing nothing."""
    caplog.set_level(logging.WARNING)
    script = """
        import logging
        logging.basicConfig(format="%(message)s", stream=sys.stdout)
        if os.getuid() == 0:
            os.setuid(65534)
        for seq in range(100):
            observer.begin(Operation("m", seq))
            time.sleep(0.005)
        observer.close()
    """
    place = tmp_path / "closed"
    place.mkdir()
    with receiver(place / "timing.sock"):
        place.chmod(0o000)
        out = finished(trainer(script, place / "timing.sock", cwd="/"))
        place.chmod(0o700)
    if os.getuid() == 0:
        assert out.count("may not connect to the sidecar at") == 1
    assert "events were not delivered at exit" in out


def test_close_waits_for_what_is_queued(path: Path) -> None:
    """`close` returns when everything is acknowledged."""
    with receiver(path) as far:
        observer = TimingObserver(path)
        for seq in range(20_000):
            observer.begin(Operation("m", seq))
        observer.close()
        assert len(far.events) == 20_000


def test_close_gives_up_after_a_second(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A sidecar that never acknowledges cannot hold `close` for longer, and the log says what
    was lost."""
    with receiver(path, acknowledge=False):
        observer = TimingObserver(path)
        for seq in range(10):
            observer.begin(Operation("m", seq))
        closing = threading.Thread(target=observer.close)
        closing.start()
        closing.join(5)
        assert not closing.is_alive()
    assert "10 events were not delivered at exit" in caplog.text


def test_interpreter_exit_delivers(path: Path) -> None:
    """A trainer that just ends, also by an exception, has its last events delivered."""
    with receiver(path) as far:
        finished(trainer("for seq in range(500): observer.begin(Operation('m', seq))", path))
        assert len(far.events) == 500
        crashed = trainer("observer.begin(Operation('m', 500)); sys.exit(3)", path)
        crashed.communicate(timeout=30)
        assert crashed.returncode == 3
        assert len(far.events) == 501


def test_exit_without_a_sidecar_takes_a_second_at_most(path: Path) -> None:
    """A trainer whose sidecar is not there ends all the same."""
    script = "observer.begin(Operation('m')); print(time.monotonic())"
    process = trainer(script, path)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0
    assert time.monotonic() - float(out) < 5
    assert "1 events were not delivered at exit" in err


def test_killed_trainer_has_delivered_all_but_the_last_moment(path: Path) -> None:
    """SIGKILL loses what was reported in the last 50 ms at most; whole frames arrive."""
    script = """
        for seq in range(1000):
            observer.begin(Operation("m", seq))
        print("reported", flush=True)
        time.sleep(60)
    """
    with receiver(path) as far:
        process = trainer(script, path)
        assert process.stdout is not None
        assert process.stdout.readline() == "reported\n"
        far.wait_for(lambda: len(far.events) == 1000)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        far.wait_for(lambda: far.ended == 1)


_FORKS = {
    "fork": """
        pid = os.fork()
        report(5)
        if pid == 0:
            observer.close()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
    """,
    "fork that exits in the ordinary way": """
        pid = os.fork()
        report(5)
        if pid == 0:
            sys.exit(0)
        assert os.waitpid(pid, 0)[1] == 0
    """,
    "multiprocessing": """
        import multiprocessing
        child = multiprocessing.get_context("fork").Process(target=report, args=(5,))
        child.start()
        report(5)
        child.join()
        assert child.exitcode == 0
    """,
    "fork from a thread": """
        import threading
        def work():
            pid = os.fork()
            report(5)
            if pid == 0:
                observer.close()
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    """,
}


@pytest.mark.parametrize("way", _FORKS)
def test_forked_child_reports_for_itself(path: Path, way: str) -> None:
    """Parent and child report 5 events each, after 3 of the parent's: 13 arrive, each once,
    over two connections, the child's naming its parent."""
    script = """
        def report(count):
            for seq in range(count):
                observer.begin(Operation(f"m{os.getpid()}", seq))
        report(3)
    """
    with receiver(path) as far:
        finished(trainer(textwrap.dedent(script) + textwrap.dedent(_FORKS[way]), path))
        far.wait_for(lambda: len(far.events) == 13)
        hellos = {hello.boot_id: hello for hello in far.hellos}
        parents = [h for h in hellos.values() if h.parent_boot_id is None]
        children = [h for h in hellos.values() if h.parent_boot_id is not None]
        assert len(parents) == len(children) == 1
        assert children[0].parent_boot_id == parents[0].boot_id
        assert children[0].pid != parents[0].pid
        counts = {h.pid: seqs(far).count(4) for h in hellos.values()}
        assert sum(counts.values()) == 2 * 2


def test_children_of_an_unused_child_report_for_themselves(path: Path) -> None:
    """A child that only forks workers, as managers do: each worker has numbers of its own."""
    script = """
        observer.begin(Operation("m", 0))
        pid = os.fork()
        if pid == 0:
            workers = []
            for worker in range(3):
                workers.append(os.fork())
                if workers[-1] == 0:
                    for seq in range(10):
                        observer.begin(Operation(f"w{worker}", seq))
                    observer.close()
                    os._exit(0)
            assert [os.waitpid(worker, 0)[1] for worker in workers] == [0, 0, 0]
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
    """
    with receiver(path) as far:
        finished(trainer(script, path))
        far.wait_for(lambda: len(far.events) == 31)
        assert len({hello.boot_id for hello in far.hellos}) == 4
        assert len({hello.parent_boot_id for hello in far.hellos}) == 2


def test_unused_observer_in_a_child_stays_silent(path: Path) -> None:
    """A child that reports nothing opens no connection, and its exit does not disturb the
    parent's."""
    script = """
        observer.begin(Operation("m", 0))
        for _ in range(3):
            pid = os.fork()
            if pid == 0:
                sys.exit(0)
            assert os.waitpid(pid, 0)[1] == 0
        observer.begin(Operation("m", 1))
    """
    with receiver(path) as far:
        finished(trainer(script, path))
        assert seqs(far) == [0, 1]
        assert len(far.hellos) == 1


def test_living_child_does_not_hold_the_parents_connection(path: Path) -> None:
    """When the parent dies its connection ends, though a child it forked lives on: else a
    restarted trainer would look like a second one."""
    script = """
        observer.begin(Operation("m", 0))
        time.sleep(0.2)
        pid = os.fork()
        if pid == 0:
            print(os.getpid(), flush=True)
            os.close(1); os.close(2)
            time.sleep(60)
            os._exit(0)
        os._exit(0)
    """
    with receiver(path) as far:
        process = trainer(script, path)
        out, _ = process.communicate(timeout=30)
        try:
            far.wait_for(lambda: far.ended == 1, timeout=5)
        finally:
            os.kill(int(out), signal.SIGKILL)


def test_exec_does_not_inherit_the_connection(path: Path) -> None:
    """A program the trainer starts has no descriptor of the hook's."""
    script = """
        import subprocess
        observer.begin(Operation("m", 0))
        time.sleep(0.2)
        out = subprocess.run(["ls", "-l", "/proc/self/fd"], close_fds=False, capture_output=True)
        assert b"socket" not in out.stdout, out.stdout
    """
    with receiver(path) as far:
        finished(trainer(script, path))
        assert len(far.events) == 1
