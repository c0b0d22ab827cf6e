"""Reports at the end of a process, and across a fork: real processes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import IO, Any

from lilo_timing._process import EXIT_TIMEOUT
from support.timely import TRIES
from support.timing_readers import ReaderModel, records
from support.timing_server import TIMEOUT, Answer, Request, TimingServer, silent_server

GONE_WITHIN = 3.0
"""Seconds that the end of a process may take for a report; a promise."""


def start(code: str, *arguments: str) -> subprocess.Popen[str]:
    """A process that runs ``code`` with this package and nothing else imported."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", f"import lilo_timing, os, sys\n{code}", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> list[Any]:
    """Wait for a good end; the JSON lines on stdout."""
    out, err = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


def stream(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def test_a_server_that_says_nothing_does_not_hold_the_process() -> None:
    """With a report in flight, after a flush of 2 s or without one, the process is gone within
    3 s, quietly."""
    code = """
lilo_timing.log_critical_path("m", base_url=sys.argv[1], timeout=60)
print("ready", flush=True)
"""
    flush = "lilo_timing.flush_critical_path(2.0)"

    def ended_both() -> float:
        """Seconds that it took."""
        processes = [start(code, url), start(code + flush, url)]
        for process in processes:
            assert stream(process.stdout).readline() == "ready\n"
        began = time.monotonic()
        for process in processes:
            assert process.wait(TIMEOUT) == 0
        took = time.monotonic() - began
        assert [process.communicate()[1] for process in processes] == ["", ""]
        return took

    with silent_server() as url:
        # A machine may stand still for a second, though hardly each time.
        assert any(ended_both() < GONE_WITHIN for _ in range(TRIES))
    assert EXIT_TIMEOUT < GONE_WITHIN


def test_who_asks_after_the_end_is_told_so(server: TimingServer) -> None:
    """A handler of the exit that was there first runs last: it gets an error, and does not wait."""
    code = """
import atexit, sys

@atexit.register
def last() -> None:
    try:
        lilo_timing.critical_path_metrics("m", base_url=sys.argv[1])
    except lilo_timing.UnavailableError as error:
        print(f'"{error}"', flush=True)

import lilo_timing
"""
    command = [sys.executable, "-W", "error", "-c", code, server.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=True)
    assert "the process is ending" in done.stdout
    assert done.stderr == ""


def test_a_child_forked_during_the_first_report_can_import(server: TimingServer) -> None:
    """What the report imports is whole by then: the lock of a module half imported would stay
    locked in the child for ever."""
    code = """
import signal, warnings
warnings.simplefilter("ignore")
import time
from lilo_timing import _process
_process._FORK_TIMEOUT = 15.0  # a busy machine is no failure
lilo_timing.log_critical_path("m", base_url=sys.argv[1])
while "httpx" not in sys.modules:
    time.sleep(0.0001)
child = os.fork()
if not child:
    signal.alarm(10)  # which ends one that hangs
    import asyncio, ssl, http.client, httpx
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
lilo_timing.flush_critical_path()
"""
    for _ in range(3):
        with start(code, server.url) as process:
            ended(process)


def test_the_end_of_a_process_waits_for_a_report_that_comes_soon(server: TimingServer) -> None:
    """A loop that ends right after its last report loses nothing, without a flush. Reports bring
    neither wandb nor a server's packages along (httpx itself looks for trio)."""
    code = """
from lilo_timing import _process
_process.EXIT_TIMEOUT = 15.0  # a busy machine is no failure
lilo_timing.log_critical_path("m", step=8, base_url=sys.argv[1], background=False)
print([name for name in ("wandb", "starlette") if name in sys.modules])
lilo_timing.log_critical_path("m", step=9, base_url=sys.argv[1])
"""
    first, loaded, last = ended(start(code, server.url))
    assert (first["step"], loaded, last["step"]) == (8, [], 9)


def test_a_forked_child_reports_for_itself(server: TimingServer) -> None:
    """While the parent's report is in flight, its child reports the same model over a connection
    of its own, on a thread of its own, with counts of its own, and so does a child while nothing
    is in flight; the parent goes on over the connection that it had."""
    code = """
def report(step, **arguments):
    lilo_timing.log_critical_path("m", step=step, base_url=sys.argv[1], **arguments)

report(1, background=False)
report(2)
sys.stdin.readline()
if not (child := os.fork()):
    assert lilo_timing.flush_critical_path(0)
    assert lilo_timing.reporting_statistics() == lilo_timing.ReportingStatistics()
    report(3)
    assert lilo_timing.flush_critical_path()
    assert lilo_timing.reporting_statistics().printed == 1
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert lilo_timing.flush_critical_path()
report(4, background=False)
if not (child := os.fork()):
    report(5, background=False)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
report(6, background=False)
"""
    answering = server.answering

    def second_after_third(request: Request) -> Answer:
        """The parent's report is in flight until the child's has come."""
        if request is server.wait_for(2):
            server.wait_for(3)
        return answering(request)

    server.answering = lambda request: (
        answering(request) if len(server.requests) == 1 else second_after_third(request)
    )
    process = start(code, server.url)
    server.wait_for(2)
    out, err = process.communicate("go on\n", timeout=TIMEOUT)
    assert (process.returncode, err) == (0, "")
    assert sorted(json.loads(line)["step"] for line in out.splitlines()) == [1, 2, 3, 4, 5, 6]
    first, second, third, fourth, fifth, sixth = (r.connection for r in server.requests)
    assert first == second == fourth == sixth
    assert len({first, third, fifth}) == 3


def test_a_child_reads_as_another_reader_than_its_parent(server: TimingServer) -> None:
    """And two processes do. A reader that the caller named goes on in a child where the parent
    was, without waiting for what the parent has in flight."""
    code = """
import threading

def read(**arguments):
    lilo_timing.critical_path_metrics("m", base_url=sys.argv[1], **arguments)

def read_all():
    lilo_timing.log_critical_path("m", base_url=sys.argv[1], background=False)
    read()
    read(reader="named")

read_all()
in_flight = threading.Thread(target=read, kwargs={"reader": "named"})
in_flight.start()
sys.stdin.readline()
if not (child := os.fork()):
    read_all()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
in_flight.join()
"""
    model = ReaderModel()

    def fourth_last(request: Request) -> Answer:
        """The parent's request in flight is answered after all of its child's."""
        if len(server.requests) >= 4 and request is server.requests[3]:
            server.wait_for(7)
        return model.answer(request)

    server.answering = fourth_last
    process = start(code, server.url)
    server.wait_for(4)
    process.communicate("go on\n", timeout=TIMEOUT)
    assert process.returncode == 0
    other = start("lilo_timing.critical_path_metrics('m', base_url=sys.argv[1])", server.url)
    ended(other)
    queries = [request.query for request in server.requests]
    named = [query.get("ack") for query in queries if query["reader"] == "named"]
    assert named == [None, "a0.3", "a0.3"]
    assert len({query["reader"] for query in queries if query["reader"] != "named"}) == 5


def test_a_restarted_loop_goes_on_under_its_name(server: TimingServer) -> None:
    """Where its predecessor's last acknowledged interval ended: the one after it, which nobody
    has acknowledged, comes again. Without a name it begins with the model."""
    model = ReaderModel()

    def one_more(request: Request) -> Answer:
        model.record()
        return model.answer(request)

    server.answering = one_more
    code = """
for _ in range(2):
    lilo_timing.log_critical_path("m", base_url=sys.argv[1], background=False, reader=READER)
"""
    reported = [
        [sorted(records(line["metrics"])) for line in ended(start(code, server.url))]
        for code in [code.replace("READER", name) for name in ("'loop'", "'loop'", "None")]
    ]
    assert reported == [[[0], [1]], [[1, 2], [3]], [[0, 1, 2, 3, 4], [5]]]
