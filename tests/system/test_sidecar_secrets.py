"""What the sidecar says to whom: its log, its lines and its errors name no model, and nothing shows
the token."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import msgpack
import pytest

from lilo_engine_hook import wire
from support.feed import begin, finish, span
from support.producer import Producer, hello_frame
from support.sidecar import SidecarProcess, launch, refusal, start_sidecar
from support.unthrottled import start_unthrottled

TOKEN = "s3cret-t0ken-w0rd"
MODELS = ["acme-Pr0ject-X", 'Pr0ject"\\\n<X>', "Pr0ject-\u00fc\U0001f600", "Pr0ject" * 36]
MARK = "Pr0ject"
"""In every model's id, however it is escaped or cut."""


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    """One without a token hears of all the models."""
    with start_unthrottled(tmp_path_factory.mktemp("models")) as running:
        yield running


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    """One with a token."""
    place = tmp_path_factory.mktemp("token")
    (place / "token").write_text(TOKEN)
    (place / "token").chmod(0o600)
    with start_sidecar(place, "--token-file", place / "token", token=TOKEN) as running:
        yield running


def said(sidecar: SidecarProcess) -> str:
    """All that it wrote so far, once it has answered what was asked before."""
    sidecar.health()
    return "\n".join([*sidecar.log.lines, *sidecar.stdout.lines])


def raw(sidecar: SidecarProcess, request: bytes) -> bytes:
    """The answer to any bytes."""
    address = ("127.0.0.1", int(sidecar.url.rsplit(":", 1)[1]))
    answer = bytearray()
    with socket.create_connection(address, timeout=20) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            while part := connection.recv(65536):
                answer += part
    return bytes(answer)


def frame(value: object) -> bytes:
    """A frame of any msgpack value."""
    payload: bytes = msgpack.packb(value)
    return len(payload).to_bytes(4, "big") + payload


# --- model ids -----------------------------------------------------------------------------


def offences(model: str) -> list[list[object]]:
    """Messages that break the format in one place each, with the id in every place there is."""
    short = model[: wire.MAX_NAME]
    good = [5, [model], short, "gpu", 0.0, 1.0, [model], None, None, None, None]
    events: list[object] = [
        [5, *[model] * 10],
        [5, [model, 5], *good[2:]],
        [*good[:4], model, *good[5:]],
        [*good[:9], model, None],
        [*good[:7], [model], *good[8:]],
        [*good[:2], model * 99, *good[3:]],
        [1, model, model],
        [2, 0.0, model, model],
        [3, 0.0, model, model, model, model, model],
        [6, 0.0, [model], model * 99],
        [7, 0.0, model, model, model, model, model],
        [8, 0.0, model],
        [model, model],
        model,
        [99, model],
    ]
    messages: list[list[object]] = [["batch", 1, 0, 0, [good, event]] for event in events]
    messages += [[short, model], ["batch", model, 0, 0, []], ["batch", 1, 0, 0, model]]
    messages += [["ack", model], ["error", short, model], [[model], model]]
    return messages


def greetings(model: str) -> list[list[object]]:
    """First messages that are no hello, likewise."""
    good: list[object] = ["hello", wire.VERSION, "boot", None, 1, 0.0, "engine"]
    places = [[*good[:at], model, *good[at + 1 :]] for at in (0, 1, 4, 5, 6)]
    return [*places, [*good, model], [*good[:2], model * 99, *good[3:]]]


@pytest.mark.parametrize("model", MODELS)
def test_log_names_no_model_whatever_a_producer_sends(sidecar: SidecarProcess, model: str) -> None:
    """Each offence is logged, and none with the id in it, in its own characters or escaped."""
    before, lines = sidecar.health()["ingest"]["protocol_errors"], len(sidecar.log.lines)
    everything = [*greetings(model), *offences(model)]
    for message in everything:
        with Producer(sidecar.socket, f"boot {len(said(sidecar))}") as producer:
            if message in offences(model):
                producer.greet("backend")
            producer.socket.sendall(frame(message))
            producer.refused()
    with Producer(sidecar.socket, "names") as producer:
        producer.greet("backend")
        for number in range(4):
            names = [f"{number}-{each}-{model[:40]}" for each in range(100)]
            with contextlib.suppress(OSError):
                producer.post(*(span([model], 0.0, 1.0, name) for name in names))
        producer.refused()
    with Producer(sidecar.socket, "cut") as producer:
        producer.socket.sendall(hello_frame("cut", "backend") + frame([model])[:-2])
    sidecar.wait_for(
        lambda health: health["ingest"]["protocol_errors"] == before + len(everything) + 2
    )
    assert sidecar.health()["ingest"]["faults"] == 0
    sidecar.log.wait_for(lambda _: len(sidecar.log.lines) >= lines + len(everything) + 2)
    assert MARK not in said(sidecar)


def test_log_names_no_model_whatever_becomes_of_it(tmp_path: Path) -> None:
    """The whole of a model's life, things out of order, a restart of the trainer, and the end of
    the sidecar: lines tell of all models together."""
    with start_sidecar(tmp_path, "--report-interval", "0.1") as sidecar:
        for boot in ("one", "two"):
            with Producer(sidecar.socket, boot) as producer:
                producer.greet()
                for model in MODELS:
                    producer.send(
                        *(finish(model, 9), wire.Forget(0.0, model), wire.Register(0.0, model)),
                        *(wire.Register(0.0, model), begin(model, 1, 0.0), begin(model, 1, 5.0)),
                        *(wire.Activity(0.0, "gpu", model, f"{model}:1", "forward_backward"),),
                        *(span([model], 9.0, 1.0, ids=[f"{model}:7"]), finish(model, 1, 2.0)),
                        *(
                            span([model], 1.0, 2.0, ids=[f"{model}:1"]),
                            wire.State(0.0, None, "idle"),
                        ),
                        *(wire.Forget(3.0, model), span([model], 1.0, 2.0)),
                    )
                    assert sidecar.timing(model)["model_id"] == model
        sidecar.line("lilo_critical_path", reason="interval")
        sidecar.stop()
        lines = [*sidecar.stdout.rest(), *sidecar.log.rest()]
        assert any('"shutdown"' in line for line in lines)
        assert MARK not in "\n".join(lines)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "request_",
    [
        "GET /api/v1/timing?model_id={0}&model_id={0}",
        "GET /api/v1/timing?model_id={0}%zz",
        "GET /api/v1/timing?model_id={0}%ff",
        "GET /api/v1/timing?model_id=" + "{0}" * 40,
        "GET /api/v1/timing?model_id={0}&reset=maybe",
        "GET /api/v1/timing?model_id=m&ack={0}",
        "GET /api/v1/timing?model_id=m&reset={0}",
        "GET /api/v1/timing?model_id=m&reader=a%20{0}",
        "GET /api/v1/timing?model_id=m&reader=a&ack={0}",
        "GET /api/v1/timing?{0}=1",
        "GET /api/v1/timing/{0}",
        "GET /{0}",
        "GET http://{0}/",
        "POST /api/v1/timing?model_id={0}",
        "DELETE /api/v1/timing/{0}",
        "Pr0ject /healthz",
        "Pr0ject",
        "GET /Pr0ject\x01",
    ],
)
def test_errors_name_no_model(sidecar: SidecarProcess, model: str, request_: str) -> None:
    """Wherever in a request the id is: the answer says what is wrong with it, not what was in it,
    as it may end up in a log; and ours says nothing of it."""
    line = request_.format(quote(model))
    answer = raw(sidecar, f"{line} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode("latin-1"))
    assert answer.startswith(b"HTTP/1.1 4"), answer
    assert b'"error":' in answer
    assert MARK.encode() not in answer
    assert MARK not in said(sidecar)


# --- the token -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_",
    [
        "GET /api/v1/timing HTTP/1.1\r\nhost: x\r\nauthorization: Basic {0}\r\n\r\n",
        "GET /api/v1/timing HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {0}x\r\n\r\n",
        "GET /api/v1/timing HTTP/1.1\r\nhost: x\r\nx-token: {0}\r\n\r\n",
        "GET /api/v1/timing?token={0} HTTP/1.1\r\nhost: x\r\n\r\n",
        *(
            f"GET /api/v1/timing?{query} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {{0}}\r\n\r\n"
            for query in (
                *("{0}", "{0}=1", "reset={0}", "reader=a&ack={0}", "reader={0}%20", "ack={0}"),
                *("{0}&{0}", "reset=1&reset={0}", "model_id={0}%zz", "model_id=" + "{0}" * 20),
            )
        ),
        "GET /{0} HTTP/1.1\r\nhost: x\r\n\r\n",
        "GET /{0} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {0}\r\n\r\n",
        "{0} /api/v1/timing HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {0}\r\n\r\n",
        "GET /api/v1/timing HTTP/1.1\r\nhost: x\r\nauthorization : Bearer {0}\r\n\r\n",
        "GET /api/v1/timing HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {0}\x00\r\n\r\n",
        "GET /api/v1/timing HTTP/1.1\r\nauthorization: Bearer {0}\r\n\r\n",
        "authorization: Bearer {0}\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nhost: x\r\ncontent-length: {0}\r\n\r\n",
    ],
)
def test_token_is_in_no_answer_and_no_line(guarded: SidecarProcess, request_: str) -> None:
    """However a client misplaces it: every such request is refused, in JSON."""
    answer = raw(guarded, request_.format(TOKEN).encode("latin-1"))
    assert answer.startswith(b"HTTP/1.1 4"), answer
    assert b'"error":' in answer
    assert TOKEN.encode() not in answer
    assert TOKEN not in said(guarded)


def test_whoever_is_refused_is_hung_up_on(guarded: SidecarProcess) -> None:
    """The rest of what it sent is not answered."""
    request = b"GET /api/v1/timing HTTP/1.1\r\nhost: x\r\n\r\n"
    answer = raw(guarded, request * 50)
    assert answer.count(b"HTTP/1.1 401 ") == 1
    assert b"connection: close\r\n" in answer


def test_token_is_nowhere_to_be_seen(guarded: SidecarProcess) -> None:
    """Not in what tells of the sidecar, nor in what the system shows of its process."""
    assert guarded.timing()["model_id"] == "*"
    for path in ("/healthz", "/openapi.json", "/api/v1/timing", "/metrics"):
        assert TOKEN not in guarded.http.get(path).text
    process = Path(f"/proc/{guarded.process.pid}")
    for part in ("cmdline", "environ"):
        assert TOKEN.encode() not in (process / part).read_bytes()
    assert TOKEN not in said(guarded)


def test_help_and_refusals_do_not_show_the_token(tmp_path: Path) -> None:
    """Also where the sidecar does not start, after it has read the token or because of it."""
    file = tmp_path / "token"
    arguments: list[str | Path] = ["--token-file", file, "--http", "0.0.0.0:0"]
    file.write_text(TOKEN)
    file.chmod(0o600)
    process = launch("serve", *arguments, "--help")
    out, err = process.communicate(timeout=20)
    assert "--token-file" in out
    assert TOKEN not in out + err
    assert TOKEN not in refusal("serve", *arguments, "--socket", "/proc/timing.sock")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        said = refusal("serve", "--token-file", file, "--http", address)
        assert TOKEN not in said
    file.write_text(f"{TOKEN} and another")
    assert TOKEN not in refusal("serve", *arguments, "--socket", tmp_path / "s")
    file.write_text(TOKEN * 1000)
    assert TOKEN not in refusal("serve", *arguments, "--socket", tmp_path / "s")
