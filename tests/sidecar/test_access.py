"""Token files, the addresses that need one, and the token on a request."""

from __future__ import annotations

import hmac
import os
from pathlib import Path

import httpx
import pytest
import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from lilo_sidecar.access import MAX_TOKEN, check_exposure, read_token
from lilo_sidecar.errors import StartError
from lilo_sidecar.web.bearer import BearerToken
from support.unreachable import in_time


def test_token_is_the_word_in_the_file(tmp_path: Path) -> None:
    """Without the white space that editors leave around it."""
    (tmp_path / "token").write_text(" word \r\n")
    assert read_token(tmp_path / "token") == "word"
    (tmp_path / "token").write_bytes(b"x" * MAX_TOKEN)
    assert read_token(tmp_path / "token") == "x" * MAX_TOKEN


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "cannot read"),
        (b"", "is empty"),
        (b" \n", "is empty"),
        ("gehe\u00efm".encode(), "printable ASCII"),
        (b"\xff\xfe", "printable ASCII"),
        (b"two words", "printable ASCII"),
        (b"x" * (MAX_TOKEN + 1), "longer than"),
    ],
)
def test_unusable_token_file_is_named_and_not_quoted(
    tmp_path: Path, content: bytes | None, reason: str
) -> None:
    """The error says which file and what is wrong with it, and shows nothing of it."""
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(StartError) as caught:
        read_token(path)
    assert reason in str(caught.value)
    assert str(path) in str(caught.value)
    assert "two words" not in str(caught.value)


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1", "2001:db8::1", "10.0.0.1"])
def test_addresses_of_others_need_a_token(address: str) -> None:
    """The reason is given, and the way out."""
    check_exposure(address, token=True)
    with pytest.raises(StartError, match=r"without a token.*--token-file"):
        check_exposure(address, token=False)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1"])
def test_loopback_needs_no_token(address: str) -> None:
    """Only this machine reaches it."""
    check_exposure(address, token=False)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([], 401),
        ([("Authorization", "Bearer word")], 200),
        ([("authorization", "bearer  word ")], 200),
        ([("Authorization", "word")], 401),
        ([("Authorization", "Basic word")], 401),
        ([("Authorization", "Bearer ")], 401),
        ([("Authorization", "Bearer wor")], 401),
        ([("Authorization", "Bearer words")], 401),
        ([("Authorization", b"Bearer w\xf6rd")], 401),
        ([("Authorization", "Bearer word"), ("Authorization", "Bearer word")], 401),
    ],
)
def test_token_on_a_request(headers: list[tuple[str, str | bytes]], status: int) -> None:
    """Exactly one Authorization header with exactly the token opens a route; the refusal is
    JSON and names the scheme."""

    async def say(request: Request) -> PlainTextResponse:
        return PlainTextResponse("inside")

    inside = Starlette(routes=[Route("/inside", say), Route("/healthz", say)])

    async def main() -> None:
        raw = [
            (name.encode(), value if isinstance(value, bytes) else value.encode())
            for name, value in headers
        ]
        transport = httpx.ASGITransport(BearerToken(inside, "word"))
        async with httpx.AsyncClient(transport=transport, base_url="http://sidecar") as client:
            answer = await client.get("/inside", headers=raw)
            assert answer.status_code == status
            if status == 401:
                assert answer.json()["error"] == "unauthorized"
                assert answer.headers["www-authenticate"] == "Bearer"
            assert (await client.get("/healthz")).text == "inside"

    trio.run(main)


@pytest.mark.parametrize("guess", [b"", b"w", b"wor", b"xord", b"word", b"words" * 1000])
def test_tokens_are_compared_in_constant_time(
    monkeypatch: pytest.MonkeyPatch, guess: bytes
) -> None:
    """Whole, and by nothing but the function that takes as long for every guess."""
    compared: list[tuple[bytes, bytes]] = []
    digest = hmac.compare_digest

    def watched(given: bytes, expected: bytes) -> bool:
        compared.append((given, expected))
        return digest(given, expected)

    async def inside(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("inside")(scope, receive, send)

    monkeypatch.setattr(hmac, "compare_digest", watched)

    async def main() -> None:
        transport = httpx.ASGITransport(BearerToken(inside, "word"))
        async with httpx.AsyncClient(transport=transport, base_url="http://sidecar") as client:
            headers = [(b"authorization", b"Bearer " + guess)]
            answer = await client.get("/inside", headers=headers)
            assert answer.status_code == (200 if guess == b"word" else 401)

    trio.run(main)
    assert compared == [(guess, b"word")]


def test_token_file_that_is_no_file_is_an_error(tmp_path: Path) -> None:
    """A directory in its place, a device, or a pipe, which nobody may ever write to."""
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for path in (*(tmp_path / name for name in ("directory", "pipe", "link")), Path("/dev/zero")):
        with in_time(), pytest.raises(StartError) as caught:
            read_token(path)
        assert str(caught.value) == f"cannot read the token file {path}: it is no regular file"


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700, 0o640, 0o604, 0o644])
def test_token_file_that_others_may_read_is_told_of(
    tmp_path: Path, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, with what to do; it serves all the same. A link, as secrets are mounted, is fine."""
    path = tmp_path / "link"
    (tmp_path / "token").write_text("word")
    (tmp_path / "token").chmod(mode)
    path.symlink_to(tmp_path / "token")
    assert read_token(path) == "word"
    told = f"other users may read the token file {path} (mode {mode:04o}); chmod 600 it"
    assert caplog.messages == ([told] if mode & 0o044 else [])
    assert all(record.levelname == "WARNING" for record in caplog.records)
