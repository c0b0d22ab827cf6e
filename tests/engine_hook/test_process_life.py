"""What becomes of events when the trainer's process closes, exits, dies or forks."""

from __future__ import annotations

import os
import signal
import textwrap
import threading
import time
from pathlib import Path

import pytest

from lilo_engine_hook import TimingObserver
from support.operations import Operation
from support.receiver import receiver
from support.reporting import finished, seqs, trainer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "timing.sock"


@pytest.mark.usefixtures("patient")
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
    process = trainer(script, path, patient=False)
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
        while not observer._sender._greeted:
            time.sleep(0.01)
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
            far.wait_for(lambda: far.ended == 1)
        finally:
            os.kill(int(out), signal.SIGKILL)


def test_exec_does_not_inherit_the_connection(path: Path) -> None:
    """A program the trainer starts has no descriptor of the hook's."""
    script = """
        import subprocess
        observer.begin(Operation("m", 0))
        while not observer._sender._greeted:
            time.sleep(0.01)
        out = subprocess.run(["ls", "-l", "/proc/self/fd"], close_fds=False, capture_output=True)
        assert b"socket" not in out.stdout, out.stdout
    """
    with receiver(path) as far:
        finished(trainer(script, path))
        assert len(far.events) == 1
