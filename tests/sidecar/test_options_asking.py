"""The command line of `check` and `top`."""

from __future__ import annotations

from pathlib import Path

import pytest

from lilo_engine_hook import default_socket_path
from lilo_sidecar.errors import StartError
from lilo_sidecar.options import parse
from lilo_sidecar.options_asking import INTERVAL, MAX_INTERVAL, MIN_INTERVAL, AskOptions


def ask(*arguments: str) -> AskOptions:
    """The options of such a verb."""
    options = parse(arguments)
    assert isinstance(options, AskOptions)
    return options


@pytest.fixture(autouse=True)
def _no_socket_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LILO_TIMING_SOCKET", raising=False)


@pytest.mark.parametrize("verb", ["check", "top"])
def test_sidecar_is_where_a_trainer_looks_for_it(
    verb: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """At the default place, at that of the environment, at the one that is named: in this order."""
    options = ask(verb)
    assert (options.socket, options.socket_named) == (Path(default_socket_path()), False)
    assert (options.url, options.token()) == (None, None)
    monkeypatch.setenv("LILO_TIMING_SOCKET", "/somewhere/timing.sock")
    options = ask(verb)
    assert (options.socket, options.socket_named) == (Path("/somewhere/timing.sock"), True)
    monkeypatch.chdir(tmp_path)
    assert ask(verb, "--socket", "a.sock").socket == tmp_path / "a.sock"


@pytest.mark.parametrize(
    ("arguments", "url"),
    [
        (("--http", "127.0.0.1:9411"), "http://127.0.0.1:9411"),
        (("--http", "[::1]:9411"), "http://[::1]:9411"),
        (("--url", "https://trainer.example/timing/"), "https://trainer.example/timing"),
    ],
)
def test_address_alone_is_asked_alone(arguments: tuple[str, ...], url: str) -> None:
    """It may be another machine's: the socket that is here by default has nothing to do with it."""
    options = ask("check", *arguments)
    assert (options.url, options.socket) == (url, None)
    assert ask("check", *arguments, "--socket", "/s").socket == Path("/s")


def test_forms_of_top() -> None:
    """Live every two seconds, unless it is told otherwise; JSON is for once."""
    live, once, as_json = ask("top"), ask("top", "--once"), ask("top", "--json")
    assert (live.once, live.as_json, live.interval) == (False, False, INTERVAL)
    assert (once.once, once.as_json) == (True, False)
    assert (as_json.once, as_json.as_json) == (True, True)
    for interval in (MIN_INTERVAL, MAX_INTERVAL):
        assert ask("top", "--interval", str(interval)).interval == interval


def test_token_of_a_file(tmp_path: Path) -> None:
    """Without the file, the error names it."""
    (tmp_path / "token").write_text("word")
    assert ask("top", "--token-file", str(tmp_path / "token")).token() == "word"
    with pytest.raises(StartError, match="missing"):
        ask("top", "--token-file", str(tmp_path / "missing")).token()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("check", "--", "cmd"), "check takes no command"),
        (("check", "--once"), "unrecognized arguments: --once"),
        (("check", "--http", "127.0.0.1:0"), "port 0 is for the sidecar to choose"),
        (("check", "--http", "9411"), "no HOST:PORT"),
        (("check", "--url", "127.0.0.1:9411"), "no URL such as http://127.0.0.1:9411"),
        (("check", "--url", "ftp://host"), "no URL such as"),
        (("check", "--url", "http://"), "no URL such as"),
        (("check", "--url", "http://h:99999"), "no URL such as"),
        (("check", "--url", "http://h\x1b[2J"), "no URL such as"),
        (("check", "--url", "http://user:s3cret@h"), "a token comes from --token-file"),
        (("check", "--url", "http://h?token=s3cret"), "a token comes from --token-file"),
        (("check", "--url", "http://h", "--http", "h:1"), "not allowed with"),
        (("top", "--interval", "0.1"), "from 0.2 to 3600"),
        (("top", "--interval", "3601"), "from 0.2 to 3600"),
        (("top", "--interval", "nan"), "from 0.2 to 3600"),
    ],
)
def test_usage_errors(
    arguments: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line that says what is wrong, and repeats no secret; status 2."""
    with pytest.raises(SystemExit) as caught:
        parse(arguments)
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line
    assert "s3cret" not in line
