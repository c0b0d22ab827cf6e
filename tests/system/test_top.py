"""`lilo-sidecar top` on a real terminal, and in scripts."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lilo_sidecar import cli
from support.overviews import NOW, busy_overview, model, overview
from support.producer import Producer
from support.sidecar import COMMAND, start_sidecar, wait_until
from support.terminal import TerminalProcess, go_on, is_stopped, on_terminal
from support.timing_server import Answer, Request, TimingServer, error, ok, timing_server

LEAVE_SCREEN = b"\x1b[?1049l"
SHOW_CURSOR = b"\x1b[?25h"


class Showing:
    """A server that gives whatever overview it is told to."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.answer = ok(document)

    def __call__(self, request: Request) -> Answer:
        return self.answer if request.path == "/api/v1/overview" else error(404)


@pytest.fixture
def showing() -> Showing:
    return Showing(busy_overview())


@pytest.fixture
def server(showing: Showing) -> Iterator[TimingServer]:
    with timing_server(showing) as running:
        yield running


@contextlib.contextmanager
def top(*arguments: str | Path, **kwargs: Any) -> Iterator[TerminalProcess]:
    """`lilo-sidecar top` on a terminal."""
    with on_terminal(*COMMAND, "top", *arguments, **kwargs) as terminal:
        yield terminal


def once(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """`lilo-sidecar top` with its output in a pipe."""
    return subprocess.run(
        [*COMMAND, "top", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "COLUMNS": "80", **environment},
        timeout=20,
    )


# --- live ------------------------------------------------------------------------------------


def test_picture_fills_a_terminal_and_changes(server: TimingServer, showing: Showing) -> None:
    """In 80 columns and 24 lines: whose time it is, what the lanes do, who waits; with new figures
    as they come."""
    with top("--url", server.url, "--interval", "0.2") as terminal:
        text = terminal.wait_for(lambda text: "█ mine   ▓ shared batch" in text)
        assert "trainer connected, heard 0.4 s ago" in text
        assert "optim_step" in text
        assert "model-2" in text
        assert b"\x1b[32m" in terminal.raw  # the characters tell as well: see NO_COLOR
        showing.answer = ok(overview(model("another-one", queued=7)))
        text = terminal.wait_for(lambda text: "another-one" in text and "model-2" not in text)
        assert "     7   0" in text


def test_as_many_models_as_fit(server: TimingServer, showing: Showing) -> None:
    """Of many, the busiest first, and how many more there are; in a larger window more of them, as
    soon as it is made larger."""
    showing.answer = ok(busy_overview(100))
    with top("--url", server.url) as terminal:
        text = terminal.wait_for(lambda text: "█ mine" in text)
        lines = text.splitlines()
        assert len(lines) == 24
        assert next(line for line in lines if "model-" in line).startswith("a model-0 ")
        here = sum("model-" in line for line in lines)
        assert f"… and {100 - here} more" in text
        terminal.resize(100, 50)
        terminal.wait_for(lambda text: f"… and {100 - here - 26} more" in text)
        terminal.resize(40, 12)
        terminal.wait_for(lambda text: f"… and {100 - here + 12} more" in text)


@pytest.mark.parametrize("ending", ["q", "\x03", signal.SIGTERM])
def test_terminal_is_left_as_it_was(server: TimingServer, ending: str | signal.Signals) -> None:
    """However it ends: keys are shown again, the cursor too, and what was there before."""
    with top("--url", server.url) as terminal:
        terminal.wait_for(lambda text: "model-2" in text)
        assert terminal.attributes_now() != terminal.attributes
        if isinstance(ending, str):
            terminal.press(ending)
        else:
            terminal.process.send_signal(ending)
        assert terminal.wait() == 0
        terminal.wait_for_raw(LEAVE_SCREEN)
        assert terminal.raw.rindex(SHOW_CURSOR) > terminal.raw.rindex(b"\x1b[?25l")
        assert terminal.attributes_now() == terminal.attributes
        assert b"Traceback" not in terminal.raw


def test_shell_has_the_terminal_meanwhile(server: TimingServer, showing: Showing) -> None:
    """Ctrl-Z leaves the terminal as it was; once it goes on, it draws again."""
    with top("--url", server.url, "--interval", "0.2") as terminal:
        terminal.wait_for(lambda text: "model-2" in text)
        pid = terminal.process.pid
        terminal.press("\x1a")
        wait_until(lambda: is_stopped(pid), bool)
        terminal.wait_for_raw(LEAVE_SCREEN)
        assert terminal.attributes_now() == terminal.attributes
        showing.answer = ok(overview(model("after-it")))
        go_on(pid)
        terminal.wait_for(lambda text: "after-it" in text)
        terminal.press("q")
        assert terminal.wait() == 0


def test_sidecar_that_does_not_answer_keeps_nobody_waiting(server: TimingServer) -> None:
    """A key is heeded while an answer is waited for."""
    server.hold()
    with top("--url", server.url) as terminal:
        terminal.wait_for(lambda text: "Asking the sidecar" in text)
        terminal.press("q")
        assert terminal.wait() == 0


def test_sidecar_that_is_away_comes_back(server: TimingServer, showing: Showing) -> None:
    """The last picture stays, with since when there is no answer, and why; then it goes on."""
    with top("--url", server.url, "--interval", "0.2") as terminal:
        terminal.wait_for(lambda text: "model-2" in text)
        before = showing.answer
        showing.answer = Answer(b"", lost=True)

        def tells(text: str) -> bool:  # in one moment: half of a picture may be drawn
            words = " ".join(text.split())
            told = all(each in words for each in ("trying again", "hung up", "model-2"))
            return told and "none lost" not in words  # which was so once

        terminal.wait_for(tells)
        terminal.wait_for(lambda text: bool(re.search(r"No answer for [1-9]", text)))
        showing.answer = before
        terminal.wait_for(lambda text: "No answer" not in text and "none lost" in text)


def test_token_is_asked_for(tmp_path: Path) -> None:
    """Without the token, or with another one, it says so, and what to do."""
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    for file in (right, wrong):
        file.write_text(f"{file.name}-word")
        file.chmod(0o600)
    with start_sidecar(tmp_path, "--token-file", right) as sidecar:
        with top("--socket", sidecar.socket) as terminal:
            terminal.wait_for(lambda text: "wants its token. Add --token-file" in text)
        with top("--socket", sidecar.socket, "--token-file", wrong) as terminal:
            terminal.wait_for(lambda text: "refuses the token" in text)


def test_model_ids_do_nothing_to_the_terminal(server: TimingServer, showing: Showing) -> None:
    """Escape sequences, line breaks, markup and marks of direction are shown, not obeyed."""
    evil = "\x1b[2J\x1b]0;owned\x07[red]e\u202e\n\x9b5m"
    lanes = {f"gpu{evil}": {"operation": evil, "for_s": 1.0}}
    showing.answer = ok(
        overview(model(evil), lanes=lanes, journal={"writing": False, "reason": evil})
    )
    with top("--url", server.url) as terminal:
        terminal.wait_for(lambda text: "�[2J�]0;owned" in text)
        assert "[red]" in terminal.text
        for part in (b"\x1b[2J\x1b]0", b"\x07", b"\x9b5m", "\u202e".encode()):
            assert part not in terminal.raw.replace(b"\xc2", b"")
    done = once("--url", server.url, "--once")
    assert all(line.isprintable() for line in done.stdout.splitlines())


def test_no_colour_where_none_is_wanted(server: TimingServer) -> None:
    """With NO_COLOR the characters tell alone."""
    with top("--url", server.url, NO_COLOR="1") as terminal:
        terminal.wait_for(lambda text: "model-2" in text)
        assert b"\x1b[32m" not in terminal.raw


# --- once ------------------------------------------------------------------------------------


def test_once_is_plain_text_in_a_pipe(server: TimingServer, showing: Showing) -> None:
    """All models, however many; no colour, no escape sequence; status 0."""
    showing.answer = ok(busy_overview(100))
    done = once("--url", server.url, "--once")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert sum("model-" in line for line in done.stdout.splitlines()) == 100
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_once_where_characters_are_few(server: TimingServer) -> None:
    """A terminal that has ASCII only gets a picture of ASCII."""
    done = once("--url", server.url, "--once", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()
    assert (
        "# mine   + shared batch   = neighbors   x overhead   - persist   . client" in done.stdout
    )


def test_json_is_one_document(server: TimingServer, showing: Showing) -> None:
    """The figures of the picture, in a form that stays."""
    showing.answer = ok(
        overview(
            model("m", queued=2, running=1),
            lanes={"gpu": {"operation": "optim_step", "for_s": 12.0}},
            spans={"gpu": [[NOW - 60, NOW - 12, "forward_backward", ["m"]]]},
            spans_from={"gpu": NOW - 120},
            models_left_out=3,
        )
    )
    done = once("--url", server.url, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {
        "now": NOW,
        "url": server.url,
        "version": "0.1.0",
        "uptime_s": 12.3,
        "window_s": 120.0,
        "trainer": {"connected": True, "last_heard_age_s": 0.4},
        "journal": {"writing": True, "reason": None},
        "delivery": {
            "sent": 1200,
            "applied": 1200,
            "dropped": 0,
            "rejected": 0,
            "unweighed": 0,
            "missed": 0,
            "negative": 0,
            "series_refused": 0,
            "pending_evicted": 0,
        },
        "faults": 0,
        "lanes": [
            {
                "lane": "gpu",
                "operation": "optim_step",
                "for_s": 12.0,
                "known_from": NOW - 120,
                "busy_share": 0.5,
            }
        ],
        "models": [
            {
                "model_id": "m",
                "queued": 2,
                "running": 1,
                "batch_factor": 1.7,
                "recent_s": 2.0,
                "interval": {
                    "since": NOW - 6,
                    "until": NOW - 1,
                    "mine_s": 2.0,
                    "shared_batch_s": 1.0,
                    "neighbors_s": 0.5,
                    "overhead_s": 0.5,
                    "persist_s": 0.0,
                    "client_s": 1.0,
                },
            }
        ],
        "models_left_out": 3,
    }


@pytest.mark.parametrize("form", ["--once", "--json"])
def test_once_without_an_answer(tmp_path: Path, form: str) -> None:
    """Status 2, and a line on stderr with what to do."""
    done = once("--socket", tmp_path / "timing.sock", form)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("lilo-sidecar: error: No sidecar has its socket at ")
    assert "lilo-sidecar serve --socket" in line


def test_live_needs_a_terminal(server: TimingServer) -> None:
    """In a pipe, or where the cursor cannot be moved, it says what to do instead."""
    done = once("--url", server.url)
    assert (done.returncode, done.stdout) == (2, "")
    assert "add --once" in done.stderr
    with top("--url", server.url, TERM="dumb") as terminal:
        assert terminal.wait() == 2
        terminal.wait_for_raw(b"add --once")


def test_without_rich(server: TimingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what to install; the figures are to be had all the same."""
    code = f"""
import sys
sys.modules["rich"] = None
from lilo_sidecar.cli import main
main(["top", "--url", {server.url!r}, "--json"])
sys.exit(main(["top", "--url", {server.url!r}, "--once"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert json.loads(done.stdout)["version"] == "0.1.0"
    assert "pip install 'lilo-timing[sidecar]'" in done.stderr


def test_answer_of_another_form(server: TimingServer, showing: Showing) -> None:
    """Whatever is missing or of another type, it is no sidecar's overview, and no traceback."""
    whole = busy_overview()
    for name in whole.keys() - {"version"}:
        for wrong in (None, [1], "x"):
            showing.answer = ok({**whole, name: wrong})
            assert cli.main(["top", "--url", server.url, "--json"]) == 2, (name, wrong)


# --- with a real sidecar ---------------------------------------------------------------------


@contextlib.contextmanager
def taken(url: str) -> Iterator[None]:
    """Nobody gets the port of a URL by chance."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # of connections that linger
        holder.bind(("127.0.0.1", int(url.rpartition(":")[2])))
        yield


def test_real_sidecar(tmp_path: Path) -> None:
    """Found by its socket; killed and started again at another port, it is found again."""
    with (
        start_sidecar(tmp_path) as sidecar,
        top("--socket", sidecar.socket, "--interval", "0.2") as terminal,
    ):
        terminal.wait_for(lambda text: "no trainer has connected yet" in text)
        with Producer(sidecar.socket) as trainer:
            trainer.greet()
            trainer.work(["real-model"])
            terminal.wait_for(lambda text: "real-model" in text)
        sidecar.stop(signal.SIGKILL)
        terminal.wait_for(lambda text: "Nobody listens at" in text)
        with (
            taken(sidecar.url),
            start_sidecar(tmp_path) as again,
            Producer(again.socket, "next") as trainer,
        ):
            assert again.url != sidecar.url
            trainer.greet()
            trainer.work(["next-model"])
            terminal.wait_for(lambda text: "next-model" in text)
            document = json.loads(once("--socket", again.socket, "--json").stdout)
            assert document["url"] == again.url
            assert document["delivery"]["applied"] >= 1
