"""The command line: what it means, and what is refused before anything starts."""

from __future__ import annotations

import contextlib
import re
import socket
from pathlib import Path

import pytest

from lilo_sidecar import options
from lilo_sidecar.errors import StartError
from lilo_sidecar.options import RunOptions, ServeOptions, parse
from lilo_sidecar.options_trace import TraceOptions


def serve(*arguments: str) -> ServeOptions:
    """The options of a `serve`."""
    options = parse(["serve", *arguments])
    assert isinstance(options, ServeOptions)
    return options


def test_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """The socket that a hook looks for by itself, any port of loopback, five minutes."""
    monkeypatch.delenv("LILO_TIMING_SOCKET", raising=False)
    options = serve()
    assert options.socket.name == "timing.sock"
    assert (options.family, options.address) == (socket.AF_INET, ("127.0.0.1", 0))
    assert options.report_interval == 300
    assert options.token() is None
    assert options.stop_at_eof is False
    assert options.state_dir == options.socket.with_name("timing.state")
    assert options.allowed_uids == frozenset()


def test_socket_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both verbs take the one that the hook takes."""
    monkeypatch.setenv("LILO_TIMING_SOCKET", "/somewhere/timing.sock")
    assert serve().socket == Path("/somewhere/timing.sock")
    run = parse(["run", "--", "true"])
    assert isinstance(run, RunOptions)
    assert run.serve.socket == Path("/somewhere/timing.sock")


def test_trace_without_a_socket_is_of_the_only_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where nobody listens at the usual place; of several runs none is picked."""
    monkeypatch.delenv("LILO_TIMING_SOCKET", raising=False)
    monkeypatch.setattr(options, "default_socket_path", lambda: str(tmp_path / "timing.sock"))

    def state(*arguments: str) -> str:
        found = parse(["trace", "-o", "f", *arguments])
        assert isinstance(found, TraceOptions)
        return found.state_dir.name

    with contextlib.ExitStack() as listeners:

        def listen(name: str) -> None:
            listener = listeners.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(str(tmp_path / name))
            listener.listen()

        assert state() == "timing.state"
        listen("run-1.sock")
        assert state() == "run-1.state"
        assert state("--socket", str(tmp_path / "timing.sock")) == "timing.state"
        listen("run-2.sock")
        assert state() == "timing.state"
        (tmp_path / "run-2.sock").unlink()
        listen("timing.sock")
        assert state() == "timing.state"


def test_relative_socket_is_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A command that changes its directory still finds it."""
    monkeypatch.chdir(tmp_path)
    assert serve("--socket", "a.sock").socket == tmp_path / "a.sock"


@pytest.mark.parametrize(
    ("arguments", "state_dir"),
    [
        (["--socket", "/run/x/timing.sock"], "/run/x/timing.state"),
        (["--socket", "/run/x/timing"], "/run/x/timing.state"),
        (["--socket", "/run/x/timing.sock", "--state-dir", "/var/lib/x"], "/var/lib/x"),
    ],
)
def test_state_directory(arguments: list[str], state_dir: str) -> None:
    """Beside the socket, unless it is told."""
    assert serve(*arguments).state_dir == Path(state_dir)


def test_relative_state_directory_is_made_absolute(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is the same one for every sidecar that `run` starts."""
    monkeypatch.chdir(tmp_path)
    assert serve("--state-dir", "kept").state_dir == tmp_path / "kept"


def test_state_of_a_run_is_kept_where_it_can_be_found_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That is where the socket or the directory was named; a run's own goes with it."""
    monkeypatch.delenv("LILO_TIMING_SOCKET", raising=False)

    def keeps(*arguments: str) -> bool:
        options = parse(["run", *arguments, "--", "true"])
        assert isinstance(options, RunOptions)
        return options.keep_state

    assert not keeps()
    assert keeps("--socket", "/run/x/timing.sock")
    assert keeps("--state-dir", "/var/lib/x")
    monkeypatch.setenv("LILO_TIMING_SOCKET", "/run/x/timing.sock")
    assert keeps()


def test_users_that_are_allowed() -> None:
    """By number or name, each once; a number need not have a name."""
    given = ["--allow-uid", "4242", "--allow-uid", "root", "--allow-uid", "4242"]
    assert serve(*given).allowed_uids == {0, 4242}


@pytest.mark.parametrize(
    ("text", "family", "address"),
    [
        ("127.0.0.1:8080", socket.AF_INET, ("127.0.0.1", 8080)),
        ("localhost:0", socket.AF_INET, ("127.0.0.1", 0)),
        ("[::1]:9", socket.AF_INET6, ("::1", 9)),
    ],
)
def test_addresses(text: str, family: int, address: tuple[str, int]) -> None:
    """Names are resolved, IPv4 first; IPv6 is in brackets."""
    options = serve("--http", text)
    assert (options.family, options.address) == (family, address)


def test_token_of_a_file(tmp_path: Path) -> None:
    """With a token, any address may be served; without the file, the error names it."""
    (tmp_path / "token").write_text("word")
    options = serve("--http", "0.0.0.0:1", "--token-file", str(tmp_path / "token"))
    assert options.token() == "word"
    with pytest.raises(StartError, match="missing"):
        serve("--token-file", str(tmp_path / "missing")).token()


def test_command_is_what_follows_the_dashes() -> None:
    """Its own options are never taken for ours, its own dashes included."""
    options = parse(["run", "--report-interval", "5", "--", "cmd", "--socket", "x", "--", "-h"])
    assert isinstance(options, RunOptions)
    assert options.command == ("cmd", "--socket", "x", "--", "-h")
    assert options.serve.report_interval == 5


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "serve | run"),
        (["fly"], "invalid choice"),
        (["serve", "--bogus"], "unrecognized arguments: --bogus"),
        (["serve", "--sock", "x"], "unrecognized arguments: --sock x"),
        (["serve", "--", "cmd"], "serve takes no command"),
        (["run"], "run needs the command"),
        (["run", "--stop-at-eof", "--", "cmd"], "unrecognized arguments"),
        (["serve", "--report-interval", "0"], "from 0.1 up"),
        (["serve", "--report-interval", "0.09"], "from 0.1 up"),
        (["serve", "--report-interval", "nan"], "from 0.1 up"),
        (["serve", "--report-interval", "inf"], "from 0.1 up"),
        (["serve", "--report-interval", "soon"], "from 0.1 up"),
        (["serve", "--http", "8080"], "no HOST:PORT"),
        (["serve", "--http", ":8080"], "no HOST:PORT"),
        (["serve", "--http", "::1:80"], "no HOST:PORT"),
        (["serve", "--http", "127.0.0.1:http"], "no port"),
        (["serve", "--http", "127.0.0.1:65536"], "no port"),
        (["serve", "--http", "127.0.0.1:-1"], "no port"),
        (["serve", "--allow-uid", "no-such-user"], "there is no user 'no-such-user' here"),
        (["serve", "--allow-uid", "-1"], "there is no user '-1'"),
        (["serve", "--allow-uid", "4294967295"], "no user's number, 0 to 4294967294"),
    ],
)
def test_usage_errors(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line that says what is wrong, and status 2."""
    with pytest.raises(SystemExit) as caught:
        parse(arguments)
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("lilo-sidecar: error: ")
    assert says in line


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--http", "0.0.0.0:80"], "without a token"),
        (["--http", "[::]:80"], "without a token"),
        (["--http", "no.such.host.invalid:80"], "no address for 'no.such.host.invalid'"),
        (["--socket", "/run/x.state"], "cannot be the socket and the state directory"),
        (["--socket", "/" + "x" * 107], "has 108 bytes; the system allows 107"),
        (["--socket", "/" + "\u00fc" * 54], "has 109 bytes"),
    ],
)
def test_options_that_cannot_work(arguments: list[str], says: str) -> None:
    """Known before anything is started, for either verb."""
    for verb in (["serve", *arguments], ["run", *arguments, "--", "true"]):
        with pytest.raises(StartError, match=re.escape(says)):
            parse(verb)
    serve("--socket", "/" + "x" * 106)
