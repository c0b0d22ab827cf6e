"""The daemon as a process: where it starts, where it does not and what it says then."""

from __future__ import annotations

import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from support.producer import Producer
from support.sidecar import refusal, start_sidecar


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
