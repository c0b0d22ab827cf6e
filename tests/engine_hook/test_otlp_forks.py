"""The OTLP observer in a trainer that forks: each process exports what it did itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.otlp_receiver import OtlpReceiver, otlp_receiver

BEGINNING = """
import os, signal, sys, threading, time
sys.path.insert(0, sys.argv[1])
from lilo_engine_hook import otlp
from support.operations import Operation

otlp.CLOSE_TIMEOUT = 20.0  # a busy machine is no failure
observer = otlp.OtlpObserver()


def work(model):
    observer.begin(Operation(model, 1))
    observer.span(model, "forward_backward", "gpu", time.time(), request_ids=[f"{model}:1"])
    observer.finish(Operation(model, 1), "done")


def fork():
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)  # which ends one that hangs
    return pid
"""


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[OtlpReceiver]:
    """Where the processes of a script export to, when they close."""
    with otlp_receiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")  # milliseconds
        yield receiver


def run(script: str) -> None:
    """Run it in a process of its own; every child that it has must end well."""
    tests = str(Path(__file__).parents[1])
    subprocess.run([sys.executable, "-c", BEGINNING + script, tests], check=True, timeout=60)


@pytest.mark.parametrize(
    "end", ["observer.close(); os._exit(0)", "sys.exit()"], ids=["closes", "just ends"]
)
def test_forked_child_exports_its_own_commands(receiver: OtlpReceiver, end: str) -> None:
    """And its parent those that were begun before the fork: each of them comes once, and none of
    the parent's is given up by the child."""
    run(f"""
observer.begin(Operation("parent", 2))
if (pid := fork()) == 0:
    work("child")
    {end}
assert os.waitpid(pid, 0)[1] == 0
work("parent")
observer.finish(Operation("parent", 2), "done")
observer.close()
""")
    found = [span for span in receiver.spans if "lilo.request_id" in span.attributes]
    ids = sorted(span.attributes["lilo.request_id"] for span in found)
    assert ids == ["child:1", "parent:1", "parent:2"]
    assert not any("lilo.abandoned" in span.attributes for span in found)
    commands = receiver.commands()
    links = sorted(batch.links for batch in receiver.lane("forward_backward"))
    assert links == sorted([commands[f"{model}:1"].span_id] for model in ("child", "parent"))


def test_fork_while_a_call_is_under_way(receiver: OtlpReceiver) -> None:
    """Another thread is within a call, and there is none in the child to come to its end: the
    child's own calls do not wait for it."""
    run("""
within, go_on = threading.Event(), threading.Event()

def call():
    with observer._lock:
        within.set()
        go_on.wait()

thread = threading.Thread(target=call)
thread.start()
within.wait()
if (pid := fork()) == 0:
    work("child")
    observer.close()
    os._exit(0)
go_on.set()
thread.join()
assert os.waitpid(pid, 0)[1] == 0
work("parent")
observer.close()
""")
    assert set(receiver.commands()) == {"child:1", "parent:1"}


def test_forked_child_counts_from_nothing(receiver: OtlpReceiver) -> None:
    """What its parent turned away is its parent's, who goes on counting."""
    run("""
otlp.MAX_OPEN = 1
for seq in range(2):
    observer.begin(Operation("parent", seq))
    observer.register_model(object())
assert (observer.evicted, observer.rejected) == (1, 2)
if (pid := fork()) == 0:
    assert (observer.evicted, observer.rejected) == (0, 0)
    observer.begin(Operation("child", 1))  # there is room again
    observer.register_model(object())
    assert (observer.evicted, observer.rejected) == (0, 1)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
assert (observer.evicted, observer.rejected) == (1, 2)
observer.close()
""")


def test_forked_child_has_a_connection_of_its_own(receiver: OtlpReceiver) -> None:
    """Two processes on one connection break into each other's requests. The parent had exported
    before it forked, and exports again while the child does."""
    run("""
work("before")
observer._provider.force_flush()
if (pid := fork()) == 0:
    work("child")
    observer.close()
    os._exit(0)
work("after")
observer.close()
assert os.waitpid(pid, 0)[1] == 0
""")
    ports = {model: receiver.commands()[f"{model}:1"].port for model in ("before", "after")}
    assert receiver.commands()["child:1"].port not in ports.values()
