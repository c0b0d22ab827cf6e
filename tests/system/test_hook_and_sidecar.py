"""The real hook and the real sidecar through faults: exact counts, and a trainer that never feels
it."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.sidecar import SidecarProcess, start_sidecar, wait_until

TESTS = str(Path(__file__).parents[1])


Start = Callable[[str, Path], "subprocess.Popen[str]"]


@pytest.fixture
def trainer() -> Iterator[Start]:
    """Starts a process with an `observer` of a socket, an `Operation` class, and a `report(n)`
    that makes n spans. It goes on when a line comes on its stdin; none outlives the test."""
    with contextlib.ExitStack() as stack:

        def start(script: str, socket: Path) -> subprocess.Popen[str]:
            head = f"""
                import os, sys, time
                sys.path.insert(0, {TESTS!r})
                from support.operations import Operation
                from lilo_engine_hook import TimingObserver, _producer
                _producer.FLUSH_TIMEOUT = 10.0  # a busy machine is no failure
                observer = TimingObserver({str(socket)!r})
                def report(count, model="m"):
                    for seq in range(count):
                        observer.span([model], "forward_backward", "gpu", 10.0, 11.0)
            """
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", textwrap.dedent(head) + textwrap.dedent(script)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            stack.callback(process.kill)
            return process

        yield start


def ask(process: subprocess.Popen[str], word: str = "") -> str:
    """Let the process go on (with a line on its stdin) and read its next line."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(word + "\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> None:
    """Let the process go on and wait for its end."""
    process.communicate("\n", timeout=30)
    assert process.returncode == 0


def executions(sidecar: SidecarProcess, model: str | None = "m") -> int:
    """Executions in the answer."""
    phases = sidecar.timing(model)["phases"]
    return int(phases["forward_backward.execute"]["count"]) if phases else 0


def delivery(sidecar: SidecarProcess) -> dict[str, int]:
    """The delivery counts."""
    counts: dict[str, int] = sidecar.timing()["delivery"]
    return counts


def test_stopped_sidecar_costs_counted_events_and_nothing_else(
    tmp_path: Path, trainer: Start
) -> None:
    """SIGSTOP the sidecar, report 1,000,000 spans, SIGCONT: no report blocks, the trainer's
    memory stays flat, one connection goes on, and applied and dropped add up exactly."""
    with start_sidecar(tmp_path) as sidecar:
        script = """
            report(1000); print("ready", flush=True); input()
            def rss():
                return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGESIZE")
            report(70_000)
            before = rss()
            report(929_000)
            print(rss() - before, flush=True); input()
            observer.close()
        """
        process = trainer(script, sidecar.socket)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        wait_until(lambda: executions(sidecar), lambda count: count == 1000)
        sidecar.process.send_signal(signal.SIGSTOP)
        growth = int(ask(process))  # answered while nobody reads: no call waited for it
        sidecar.process.send_signal(signal.SIGCONT)
        assert growth < 16 * 1024 * 1024
        wait_until(
            lambda: delivery(sidecar),
            lambda counts: counts["applied"] + counts["dropped"] == 1_000_000,
        )
        counts = delivery(sidecar)
        assert counts["dropped"] > 0
        assert counts["applied"] >= 65_000
        assert executions(sidecar) == counts["applied"]
        assert sidecar.health()["producers"] == 1
        assert sidecar.health()["ingest"]["protocol_errors"] == 0
        end(process)


def test_ranks_do_not_multiply_counts(
    tmp_path: Path, trainer: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two ranks of one job run the same commands, one of them late: each counts once."""
    with start_sidecar(tmp_path) as sidecar:
        for rank in ("0", "1"):
            monkeypatch.setenv("RANK", rank)
            end(trainer("report(7)", sidecar.socket))
        assert executions(sidecar) == 7


def test_restarted_trainer_starts_afresh(tmp_path: Path, trainer: Start) -> None:
    """A trainer that is killed and started again: its old aggregate is a line on stdout, and
    the figures begin anew, whether the new one comes at once or not."""
    with start_sidecar(tmp_path) as sidecar:
        for life in range(3):
            process = trainer("report(10); print('reported', flush=True); input()", sidecar.socket)
            assert process.stdout is not None
            assert process.stdout.readline() == "reported\n"
            # Until the new one was heard, the figures are still the old one's.
            wait_until(lambda: len(sidecar.lines("lilo_critical_path")), life.__eq__)
            wait_until(lambda: executions(sidecar, None), lambda count: count == 10)
            process.kill()
            process.communicate()
        lines = sidecar.lines("lilo_critical_path")
        assert len(lines) == 2
        assert [line["reason"] for line in lines] == ["trainer_restarted"] * 2
        for line in lines:
            assert line["phases"]["forward_backward.execute"]["count"] == 10


def test_two_trainers_in_one_container(tmp_path: Path, trainer: Start) -> None:
    """Several engines report to one sidecar: each model has its own figures, the aggregate
    both, and neither is taken for the other's restart."""
    with start_sidecar(tmp_path) as sidecar:
        processes = []
        for model, count in (("a", 3), ("b", 5)):
            script = f"report({count}, {model!r}); print('reported', flush=True); input()"
            process = trainer(script, sidecar.socket)
            assert process.stdout is not None
            assert process.stdout.readline() == "reported\n"
            processes.append(process)
        wait_until(lambda: executions(sidecar, None), lambda count: count == 8)
        assert (executions(sidecar, "a"), executions(sidecar, "b")) == (3, 5)
        assert sidecar.health()["producers"] == 2
        assert sidecar.lines("lilo_critical_path") == []
        for process in processes:
            end(process)


def test_model_ids_without_end_do_not_grow_the_sidecar(tmp_path: Path, trainer: Start) -> None:
    """120,000 distinct models: memory is capped, the excess is counted, the aggregate has every
    one."""
    script = """
        def models(first, last):
            for number in range(first, last):
                observer.register_model(f"tenant-{number:060}")
                observer.span([f"tenant-{number:060}"], "forward_backward", "gpu", 10.0, 11.0)
                while observer._sender.undelivered > 20_000:
                    time.sleep(0.01)  # dropping is another test's
        models(0, 40_000)
        print("warm", flush=True); input()
        models(40_000, 120_000)
        print("done", flush=True); input()
    """

    def all_of(count: int) -> Any:
        return wait_until(lambda: executions(sidecar, None), lambda seen: seen == count)

    with start_sidecar(tmp_path) as sidecar:
        process = trainer(script, sidecar.socket)
        assert process.stdout is not None
        assert process.stdout.readline() == "warm\n"
        all_of(40_000)  # by now there was a snapshot, which takes memory of its own
        before = sidecar.rss_bytes()
        assert ask(process) == "done"
        all_of(120_000)
        assert sidecar.rss_bytes() - before < 10 * 1024 * 1024
        counts = delivery(sidecar)
        assert counts["dropped"] == 0
        # Refused twice each: the registration, and the span's record.
        assert counts["series_refused"] == 2 * (120_000 - 8192)
        end(process)
