"""The daemon as a process: its start, its socket, its answers, its lines, its end."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.feed import begin, span
from support.producer import Producer, hello_frame
from support.sidecar import COMMAND, TIMEOUT, launch, refusal, running, start_sidecar

FLOOD = """
import socket, sys, threading
from support.feed import span
from support.producer import hello_frame
from lilo_engine_hook import wire
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
threading.Thread(target=lambda: [None for _ in iter(lambda: connection.recv(65536), b"")]).start()
connection.sendall(hello_frame())
packed = [wire.encode_event(span(["m"], 0.0, 1.0))] * 1000
first = 1
while True:
    connection.sendall(wire.encode_batch(first, 0, 0, packed))
    first += 1000
"""
TESTS = Path(__file__).parents[1]
PROMISED = 5.0
"""Seconds within which the sidecar ends."""


# --- start ---------------------------------------------------------------------------------


def test_ready_line_names_a_private_socket_and_a_url(tmp_path: Path) -> None:
    """Once ready, it says where; the directory and the socket are its user's alone."""
    path = tmp_path / "made" / "for" / "it" / "timing.sock"
    with start_sidecar(tmp_path, "--socket", path) as sidecar:
        assert sidecar.socket == path
        assert sidecar.url.startswith("http://127.0.0.1:")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert sidecar.health()["status"] == "waiting"


def test_live_socket_is_refused_and_left_alone(tmp_path: Path) -> None:
    """A second sidecar at the same path does not start, and takes nothing from the first."""
    with start_sidecar(tmp_path) as sidecar:
        said = refusal("serve", "--socket", sidecar.socket)
        assert str(sidecar.socket) in said
        assert "another process listens" in said
        with Producer(sidecar.socket) as producer:
            assert producer.greet() == 0


def test_killed_sidecar_is_replaced_at_the_same_path(tmp_path: Path) -> None:
    """The socket that a killed sidecar left behind does not keep the next one from starting,
    nor do its connections keep the next one from its port."""
    with start_sidecar(tmp_path) as first, Producer(first.socket) as producer:
        producer.greet()
        first.health()
        assert first.stop(signal.SIGKILL) == -signal.SIGKILL
        assert first.socket.exists()
        address = first.url.removeprefix("http://")
        with start_sidecar(tmp_path, "--http", address) as second:
            assert second.url == first.url
            with Producer(second.socket) as again:
                assert again.greet() == 0


def test_file_that_is_no_socket_is_never_deleted(tmp_path: Path) -> None:
    """A regular file at the path is left as it is, and the error says what it is."""
    path = tmp_path / "timing.sock"
    path.write_text("precious")
    assert "is no socket" in refusal("serve", "--socket", path)
    assert path.read_text() == "precious"


def test_path_over_the_limit_is_refused(tmp_path: Path) -> None:
    """A path that the system cannot bind is an error that says how long it may be."""
    said = refusal("serve", "--socket", tmp_path / ("d" * 120) / "timing.sock")
    assert "the system allows 107" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["/proc/timing.sock", "/proc/missing/timing.sock"])
def test_directory_that_cannot_be_written_is_named(path: str) -> None:
    """Where no socket, or no directory, can be made, the error names the path."""
    assert f"cannot listen on {path}: " in refusal("serve", "--socket", path)


def test_port_in_use_is_named(tmp_path: Path) -> None:
    """A port that somebody has is an error with the way out, and leaves no socket behind."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        path = tmp_path / "timing.sock"
        said = refusal("serve", "--socket", path, "--http", address)
    assert f"cannot serve HTTP on {address}" in said
    assert "choose another port" in said
    assert not path.exists()


def test_address_of_others_needs_a_token(tmp_path: Path) -> None:
    """Every address but loopback is refused without a token, with the reason."""
    said = refusal("serve", "--socket", tmp_path / "s", "--http", "0.0.0.0:0")
    assert "without a token" in said
    assert "--token-file" in said


def test_missing_extra_says_what_to_install() -> None:
    """Without the packages of the extra, the command says how to get them, in one line."""
    code = """
import sys
sys.modules["trio"] = None
from lilo_sidecar.cli import main
sys.exit(main(["serve"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert "pip install 'lilo-timing[sidecar]'" in line


# --- access --------------------------------------------------------------------------------


def test_token_guards_everything_but_health(tmp_path: Path) -> None:
    """With a token, other addresses may be served; the token opens every route, and it shows
    up in no log line."""
    (tmp_path / "token").write_text("s3cret-word\n")
    with start_sidecar(
        tmp_path,
        *("--http", "0.0.0.0:0", "--token-file", tmp_path / "token"),
        token="s3cret-word",
    ) as sidecar:
        assert sidecar.timing()["model_id"] == "*"
        del sidecar.http.headers["Authorization"]
        assert sidecar.health()["status"] == "waiting"
        for path in ("/api/v1/timing", "/openapi.json", "/nowhere"):
            answer = sidecar.http.get(path)
            assert answer.status_code == 401
            assert set(answer.json()) == {"error", "message"}
        wrong = {"Authorization": "Bearer s3cret-worD"}
        assert sidecar.http.get("/api/v1/timing", headers=wrong).status_code == 401
        sidecar.stop()
        assert "s3cret" not in "".join(sidecar.log.rest() + sidecar.stdout.rest())


# --- answers -------------------------------------------------------------------------------


def test_what_a_trainer_reports_is_what_is_answered(tmp_path: Path) -> None:
    """Events become figures, per model and for all; a reset begins the next interval."""
    with start_sidecar(tmp_path) as sidecar, Producer(sidecar.socket) as producer:
        producer.greet()
        assert producer.send(begin("a", 1, 1.0), span(["a"], 3.0, 7.0, ids=["a:1"])) == 2
        assert producer.work(["a", "b"], 2.0) == 3
        phases = sidecar.timing("a", reset=True)["phases"]
        assert phases["forward_backward.queue_wait"]["total_s"] == 2.0
        assert phases["forward_backward.execute"]["total_s"] == 6.0
        assert sidecar.timing("a")["phases"] == {}
        assert sidecar.timing()["phases"]["forward_backward.execute"]["count"] == 2
        health = sidecar.health()
        assert health["status"] == "ok"
        assert health["trainer"]["connected"] is True
        assert health["trainer"]["last_heard_age_s"] >= 0
        assert health["producers"] == health["ingest"]["connections"] == 1
        producer.close()
        sidecar.wait_for(lambda health: not health["trainer"]["connected"])


def test_awkward_model_ids_come_back_intact(tmp_path: Path) -> None:
    """Whatever a model is called, its figures are found, beside those of the others."""
    models = ['quo"te', "back\\slash", "line\nfeed", "<script>", "ü&=+ %/?#", "plain"]
    with start_sidecar(tmp_path) as sidecar, Producer(sidecar.socket) as producer:
        producer.greet()
        producer.work(models)
        for name in models:
            timing = sidecar.timing(name)
            assert timing["model_id"] == name
            assert timing["phases"]["forward_backward.execute"]["count"] == 1


def test_restarted_trainer_starts_afresh_after_a_line_of_the_old(tmp_path: Path) -> None:
    """All that the old one sent is in its last line, although the new one's hello was waiting
    before the old one's bytes were read; then the numbers begin anew."""
    with start_sidecar(tmp_path) as sidecar:
        old, new = Producer(sidecar.socket, "old"), Producer(sidecar.socket, "new")
        old.greet()
        # The daemon is stopped, so that it finds all of this at once.
        sidecar.process.send_signal(signal.SIGSTOP)
        for _ in range(50):
            old.post(span(["m"], 0.0, 1.0))
        old.close()
        new.socket.sendall(hello_frame("new"))
        with new:
            sidecar.process.send_signal(signal.SIGCONT)
            assert new.acknowledged() == 0
            line = sidecar.line("lilo_critical_path", reason="trainer_restarted")
            assert line["phases"]["forward_backward.execute"]["count"] == 50
            assert sidecar.timing()["phases"] == {}
            assert sidecar.health()["producers"] == 1


# --- lines ---------------------------------------------------------------------------------


def test_interval_lines_come_once_a_trainer_was_heard(tmp_path: Path) -> None:
    """The aggregate since the trainer's start is printed, whatever was reset meanwhile."""
    with start_sidecar(tmp_path, "--report-interval", "0.1") as sidecar:
        with Producer(sidecar.socket) as producer:
            producer.greet()
            producer.work()
            sidecar.timing(reset=True)
            line = sidecar.line("lilo_critical_path", reason="interval")
        assert line["phases"]["forward_backward.execute"]["count"] == 1
        assert line["model_id"] == "*"


@pytest.mark.parametrize("closed", ["before", "later"])
def test_closed_stdout_is_no_reason_to_end(tmp_path: Path, closed: str) -> None:
    """The daemon serves on when nobody reads its lines any more, or nobody ever could."""
    path = tmp_path / "timing.sock"
    arguments = ["serve", "--socket", str(path), "--report-interval", "0.1"]
    if closed == "before":
        # The shell closes it; the next descriptors that are opened would take its place.
        process = subprocess.Popen(
            ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, *arguments],
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + TIMEOUT
        while not path.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
    else:
        ready = launch(*arguments)
        assert ready.stdout is not None
        assert ready.stderr is not None
        ready.stdout.readline()
        ready.stdout.close()
        ready.stderr.close()
        process = ready  # type: ignore[assignment]
    with Producer(path) as producer:
        assert producer.greet() == 0
        for number in range(1, 6):
            assert producer.work() == number
        if closed == "before":
            # No socket has taken its number.
            assert Path(f"/proc/{process.pid}/fd/1").readlink() == Path(os.devnull)
        process.terminate()
        assert process.wait(PROMISED) == 0


def test_unread_stdout_never_holds_the_daemon_up(tmp_path: Path) -> None:
    """With a full pipe for stdout it still takes events, answers, and ends in time."""
    reading, writing = os.pipe()
    path = tmp_path / "timing.sock"
    os.set_blocking(writing, False)
    process = subprocess.Popen(
        [*COMMAND, "serve", "--socket", str(path), "--report-interval", "0.1"],
        stdout=writing,
        stderr=subprocess.PIPE,
    )
    ready = json.loads(os.read(reading, 65536))
    while True:
        try:
            os.write(writing, b"x" * 4096)
        except BlockingIOError:
            break
    os.set_blocking(writing, True)  # shared with the daemon, which is to meet a write that blocks
    with Producer(Path(ready["socket"])) as producer:
        producer.greet()
        for number in range(1, 100):
            assert producer.work() == number
        process.terminate()
        assert process.wait(PROMISED) == 0
    assert process.stderr is not None
    process.stderr.close()
    os.close(reading)
    os.close(writing)


# --- end -----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_end_is_orderly_with_everybody_connected(tmp_path: Path, number: int) -> None:
    """An idle keep-alive client, a half-sent request and an open producer do not delay the end:
    what was sent is in the last line, the socket is gone, the status is 0."""
    with start_sidecar(tmp_path) as sidecar, Producer(sidecar.socket) as producer:
        producer.greet()
        sidecar.health()  # its connection stays open
        port = int(sidecar.url.rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", port)) as half:
            half.sendall(b"GET /healthz HTTP/1.1\r\nhost: ")
            sidecar.process.send_signal(signal.SIGSTOP)
            for _ in range(2):  # more than is read at once
                producer.post(*[span(["m"], 0.0, 1.0)] * 1000)
            sidecar.process.send_signal(number)
            sidecar.process.send_signal(signal.SIGCONT)
            assert sidecar.process.wait(PROMISED) == 0
        line = sidecar.line("lilo_critical_path", reason="shutdown")
        assert line["phases"]["forward_backward.execute"]["count"] == 2000
        assert not sidecar.socket.exists()
        assert [producer.acknowledged(), producer.acknowledged()] == [1000, 2000]
        assert sidecar.log.rest() == []


def test_producer_that_was_not_accepted_yet_is_read_at_the_end(tmp_path: Path) -> None:
    """What a connection in the queue had sent is in the last line, too."""
    with start_sidecar(tmp_path) as sidecar:
        sidecar.process.send_signal(signal.SIGSTOP)
        with Producer(sidecar.socket) as producer:
            sidecar.process.send_signal(signal.SIGTERM)
            producer.socket.sendall(hello_frame())
            producer.post(span(["m"], 0.0, 1.0))
            sidecar.process.send_signal(signal.SIGCONT)
            assert sidecar.process.wait(PROMISED) == 0
        line = sidecar.line("lilo_critical_path", reason="shutdown")
        assert line["phases"]["forward_backward.execute"]["count"] == 1


def test_flooding_producer_does_not_delay_the_end(tmp_path: Path) -> None:
    """One that never stops sending is cut off in time."""
    with start_sidecar(tmp_path) as sidecar:
        flood = subprocess.Popen(
            [sys.executable, "-c", FLOOD, str(sidecar.socket)],
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(TESTS)},
        )
        sidecar.wait_for(lambda health: health["trainer"]["connected"])
        try:
            assert sidecar.stop(timeout=PROMISED) == 0
        finally:
            flood.kill()
            flood.wait()


def test_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    """A second signal does not wait for the end that the first one began."""
    with start_sidecar(tmp_path) as sidecar:
        sidecar.process.send_signal(signal.SIGSTOP)
        sidecar.process.send_signal(signal.SIGTERM)
        sidecar.process.send_signal(signal.SIGINT)
        status = sidecar.stop(signal.SIGCONT)
        assert status in (-signal.SIGTERM, -signal.SIGINT)
        sidecar.stdout.rest()
        assert sidecar.lines("lilo_critical_path") == []


def test_socket_of_a_successor_is_not_removed(tmp_path: Path) -> None:
    """At its end it removes its own socket only, not what has taken the place since."""
    with start_sidecar(tmp_path) as sidecar:
        sidecar.socket.unlink()
        with start_sidecar(tmp_path) as successor:
            assert sidecar.stop() == 0
            assert successor.socket.exists()
            with Producer(successor.socket) as producer:
                assert producer.greet() == 0


def test_end_of_stdin_stops_it_when_asked_to(tmp_path: Path) -> None:
    """Started by a supervisor, it does not outlive it."""
    process = launch(
        *("serve", "--stop-at-eof", "--socket", tmp_path / "timing.sock"), stdin=subprocess.PIPE
    )
    with running(process) as sidecar:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(PROMISED) == 0
        assert "stdin ended" in sidecar.log.rest()[0]
