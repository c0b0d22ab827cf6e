"""The daemon as a process: what it answers, and to whom, and its lines."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from support.feed import begin, span
from support.producer import Producer, hello_frame
from support.sidecar import COMMAND, PROMISED, launch, start_sidecar, wait_until


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


def test_interval_lines_come_once_a_trainer_was_heard(tmp_path: Path) -> None:
    """The aggregate since the trainer's start is printed, whatever was reset meanwhile."""
    with start_sidecar(tmp_path, "--report-interval", "0.1") as sidecar:
        with Producer(sidecar.socket) as producer:
            producer.greet()
            producer.work()
            sidecar.timing(reset=True)
            before = len(sidecar.lines("lilo_critical_path"))
            # One of the time between the greeting and the work may be under way still.
            (line, *_) = wait_until(
                lambda: [
                    line for line in sidecar.lines("lilo_critical_path")[before:] if line["phases"]
                ],
                bool,
            )
        assert line["reason"] == "interval"
        assert line["phases"]["forward_backward.execute"]["count"] == 1
        assert line["model_id"] == "*"


def listens(path: Path) -> bool:
    """Whether somebody takes connections there. The file is there a moment before."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


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
        wait_until(lambda: listens(path), bool)
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
