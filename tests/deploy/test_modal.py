"""The Modal app: what Modal is told, and what runs in the container, without Modal's cloud."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, cast

import httpx
import modal
import pytest
from modal._partial_function import _find_callables_for_obj, _PartialFunctionFlags
from starlette.applications import Starlette

import lilo_modal.app
from lilo_modal import container, published
from lilo_modal.container import TimedTrainer
from lilo_modal.published import Entry, engine_for, publish, withdraw
from lilo_timing import timing_routes
from support.docker import Dockerfile
from support.pages import ROOT, commands, snippets
from support.sidecar import TIMEOUT, Output, wait_until

FOLDER = ROOT / "deploy" / "modal"
PACKAGE = FOLDER / "lilo_modal"
TRAINER = """
import os, signal, socket, sys
from lilo_engine_hook import TimingObserver, _producer
_producer.FLUSH_TIMEOUT = 10.0  # a busy machine is no failure
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # of all threads
timing = TimingObserver()
timing.span("m", "forward_backward", "gpu", 0.0, 1.0)
listener = socket.create_server(("0.0.0.0", int(sys.argv[1])))
signal.sigwait({signal.SIGTERM})
if len(sys.argv) > 2:
    signal.sigwait({signal.SIGTERM})
timing.span("m", "forward_backward", "gpu", 1.0, 3.0)
timing.close()
"""
"""Reports one execution, serves, and another one when it is told to end; or does not end."""


class Entries(dict[str, Any]):
    """A registry in this process."""


def free_ports() -> tuple[int, int]:
    """Two that nobody has, and that the system gives to nobody who asks for any: until they are
    listened on, they are anybody's."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    found: list[int] = []
    for port in random.sample(range(first // 2, first), 100):
        with contextlib.suppress(OSError), socket.create_server(("", port)):
            found.append(port)
        if len(found) == 2:
            break
    one, other = found
    return one, other


class Started:
    """A trainer with its sidecar, and what both say on stdout."""

    def __init__(self, *extra: str, script: str = TRAINER) -> None:
        self.timing_port, self.port = free_ports()
        self.token_files: list[Path] = []
        reading, writing = os.pipe()
        self.trainer = TimedTrainer(
            lambda token: self.command(token, script, *extra),
            timing_port=self.timing_port,
            trainer_port=self.port,
            stdout=writing,
        )
        os.close(writing)
        self.stdout = Output(cast(IO[str], os.fdopen(reading)))
        self.url = f"http://127.0.0.1:{self.timing_port}"
        headers = {"Authorization": f"Bearer {self.trainer.token}"}
        self.http = httpx.Client(
            base_url=self.url, headers=headers, trust_env=False, timeout=TIMEOUT
        )

    def command(self, token: Path, script: str, *extra: str) -> list[str]:
        self.token_files.append(token)
        return [sys.executable, "-c", script, str(self.port), *extra]

    def executions(self) -> int:
        answer = self.http.get("/api/v1/timing", params={"model_id": "m"}).json()
        return int(answer["phases"].get("forward_backward.execute", {"count": 0})["count"])


@pytest.fixture
def started() -> Iterator[Started]:
    """One that serves."""
    running = Started()
    try:
        running.trainer.wait_until_serving(TIMEOUT)
        yield running
    finally:
        running.http.close()
        running.trainer.drain(0.0)


def processes_with(text: str) -> list[int]:
    """Those whose command line or environment has the text in it."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if text.encode() in (place / "cmdline").read_bytes() + (place / "environ").read_bytes():
                found.append(int(place.name))
    return found


def test_trainer_is_timed_and_its_figures_want_the_token(started: Started) -> None:
    """Real processes: the trainer finds the sidecar, which serves on all addresses and asks for
    the token. That is in a file of this user's alone, and nobody's arguments or environment."""
    wait_until(started.executions, lambda count: count == 1)
    started.http.headers.clear()
    assert started.http.get("/api/v1/timing").status_code == 401
    assert httpx.get(f"http://127.0.0.2:{started.timing_port}/healthz").status_code == 200
    (file,) = started.token_files
    assert file.read_text() == started.trainer.token
    assert len(started.trainer.token) == 64
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert processes_with(str(file)) != []
    assert processes_with(started.trainer.token) == []


def test_drain_lets_the_trainer_finish_and_report(started: Started) -> None:
    """What it does on its way out is in the sidecar's last line; then all is gone."""
    wait_until(started.executions, lambda count: count == 1)
    assert started.trainer.drain() == 0
    last = json.loads(started.stdout.rest()[-1])
    assert (last["event"], last["reason"]) == ("lilo_critical_path", "shutdown")
    assert last["phases"]["forward_backward.execute"]["count"] == 2
    assert not started.token_files[0].parent.exists()
    assert processes_with(str(started.token_files[0])) == []
    assert started.trainer.drain() == 0  # again


def test_what_does_not_end_in_time_is_killed() -> None:
    """The trainer takes no notice of the signal: it goes with the deadline, and its sidecar."""
    started = Started("stays")
    with started.http:
        started.trainer.wait_until_serving(TIMEOUT)
        wait_until(started.executions, lambda count: count == 1)
        assert started.trainer.drain(timeout=0.3) == -signal.SIGKILL
    assert started.stdout.rest() != []  # nobody has it open any more
    wait_until(lambda: processes_with(str(started.token_files[0])), lambda found: found == [])
    assert container.DRAIN_TIMEOUT + 5 < 30  # Modal's, with time left for the rest


def test_trainer_that_ends_before_it_serves_is_told() -> None:
    """With its status, and where to look."""
    started = Started(script="raise SystemExit(7)")
    with started.http, pytest.raises(RuntimeError, match="ended with status 7 before it served"):
        started.trainer.wait_until_serving(TIMEOUT)
    assert started.trainer.wait() == 7
    started.trainer.drain()


def test_trainer_that_never_serves_is_given_up(started: Started) -> None:
    """The port that nobody listened on is named. Another container's trainer is nothing to it:
    each has a token of its own."""
    other = Started(script="import time; time.sleep(1000)")
    said = f"does not serve on port {other.port} after 0.2 s"
    with other.http, pytest.raises(RuntimeError, match=said):
        other.trainer.wait_until_serving(timeout=0.2)
    other.trainer.drain(0.0)
    assert other.trainer.token != started.trainer.token


# --- what is published -----------------------------------------------------------------------


def test_only_ones_own_entry_is_withdrawn() -> None:
    """The container that replaces a preempted one may have published before the first is done."""
    first = Entry("http://trainer", "http://timing", "token 1")
    second = Entry("http://trainer", "http://timing", "token 2")
    registry = Entries()
    publish(registry, "engine-0", first)
    publish(registry, "engine-0", second)
    withdraw(registry, "engine-0", first)
    assert registry["engine-0"]["token"] == "token 2"
    withdraw(registry, "engine-0", second)
    withdraw(registry, "engine-0", second)
    assert registry == {}
    assert "token 1" not in repr(first)


def test_control_plane_finds_the_sidecar_of_a_model(started: Started) -> None:
    """By `engine_for` and the route: the sidecar's own answer for a model that was placed, 404 for
    one that was not, and for one whose engine is gone."""
    wait_until(started.executions, lambda count: count == 1)
    registry = Entries()
    publish(registry, "engine-0", Entry("http://trainer", started.url, started.trainer.token))

    async def look_up(engine: str) -> Any:
        return registry.get(engine)

    placed = {"m": "engine-0", "gone": "engine-1"}
    app = Starlette(routes=timing_routes(engine_for(placed.get, look_up)))

    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://control") as client:
            return [
                await client.get("/api/v1/timing", params={"model_id": model})
                for model in ("m", "gone", "nobody's")
            ]

    answers = asyncio.run(ask())
    assert [answer.status_code for answer in answers] == [200, 404, 404]
    assert answers[0].json()["phases"]["forward_backward.execute"]["count"] == 1


# --- the app -----------------------------------------------------------------------------------


@contextlib.contextmanager
def tunnel(port: int) -> Iterator[SimpleNamespace]:
    """In the place of Modal's, which there is in its containers only: straight to the port."""
    yield SimpleNamespace(url=f"http://127.0.0.1:{port}")


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Entries:
    """Where the app publishes, in this process; and ports that are free."""
    entries = Entries()
    monkeypatch.setattr(lilo_modal.app, "engines", entries)
    timing_port, trainer_port = free_ports()
    monkeypatch.setattr(lilo_modal.app, "TIMING_PORT", timing_port)
    monkeypatch.setattr(lilo_modal.app, "TRAINER_PORT", trainer_port)
    monkeypatch.setattr(modal, "forward", tunnel)
    return entries


def test_app_runs_publishes_and_drains(registry: Entries, monkeypatch: pytest.MonkeyPatch) -> None:
    """By Modal's own `.local()`, which starts it as a container does: the entry that is published
    leads to the trainer and to its timing. What Modal calls at the end, as when it preempts the
    container, ends the trainer in good order and takes the entry back."""
    port = str(lilo_modal.app.TRAINER_PORT)
    command = [sys.executable, "-c", TRAINER, port]
    monkeypatch.setattr(lilo_modal.app, "trainer_command", lambda token: command)
    engine: Any = lilo_modal.app.Engine(name="engine-7")  # type: ignore[call-arg]
    failures: list[BaseException] = []

    def run() -> None:
        try:
            engine.run.local()
        except RuntimeError as error:
            failures.append(error)

    running = threading.Thread(target=run, daemon=True)
    running.start()
    try:
        entry = wait_until(lambda: registry.get("engine-7", {}), bool)
        assert entry["trainer_url"] == f"http://127.0.0.1:{port}"
        url = f"{entry['timing_url']}/api/v1/timing"
        headers = {"Authorization": f"Bearer {entry['token']}"}
        wait_until(lambda: httpx.get(url, headers=headers).json()["phases"], bool)
    finally:
        instance = engine._cached_user_cls_instance()
        at_exit = _find_callables_for_obj(instance, _PartialFunctionFlags.EXIT)
        for method in at_exit.values():
            method()
        left = instance._trainer._process.poll() is None
        instance._trainer.drain(0.0)
        running.join(TIMEOUT)
    assert (list(at_exit), left) == (["stop"], False)
    assert registry == {}
    assert [str(error) for error in failures] == ["the trainer ended with status 0"]
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)


def test_stand_in_trainer_takes_its_options(tmp_path: Path) -> None:
    """It comes as far as reading the token, which is not there."""
    command = lilo_modal.app.trainer_command(tmp_path / "token")
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=TIMEOUT)
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith(f"No such file or directory: '{tmp_path}/token'")


def test_start_that_fails_leaves_nothing(
    registry: Entries, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here no tunnel is to be had: the error comes through for Modal to try again, the processes
    are ended, nothing is published."""
    token_files: list[Path] = []

    def command(token: Path) -> list[str]:
        token_files.append(token)
        return [sys.executable, "-c", TRAINER, str(lilo_modal.app.TRAINER_PORT)]

    def no_tunnel(port: int) -> Any:
        raise ConnectionError("no tunnel")

    monkeypatch.setattr(lilo_modal.app, "trainer_command", command)
    monkeypatch.setattr(modal, "forward", no_tunnel)
    engine: Any = lilo_modal.app.Engine(name="engine-7")  # type: ignore[call-arg]
    try:
        with pytest.raises(ConnectionError, match="no tunnel"):
            engine.run.local()
        assert processes_with(str(token_files[0])) == []
        assert registry == {}
    finally:
        engine._cached_user_cls_instance()._trainer.drain(0.0)


def test_modal_knows_the_app() -> None:
    """What its own package makes of it, and its own command line: a class with its parameter's
    default and the method that starts it, and an entry point with an option."""
    assert lilo_modal.app.app.name == "lilo-trainer"
    assert isinstance(lilo_modal.app.Engine, modal.Cls)
    assert lilo_modal.app.Engine().name == "engine-0"
    command = [sys.executable, "-m", "modal", "run", "-m", "lilo_modal.app", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/")
    assert "--name TEXT" in shown.stdout
    made: Any = lilo_modal.app.Engine()
    instance = made._cached_user_cls_instance()
    entered = _find_callables_for_obj(instance, _PartialFunctionFlags.ENTER_POST_SNAPSHOT)
    assert list(entered) == ["start"]


def test_app_can_be_imported_where_there_is_no_checkout(tmp_path: Path) -> None:
    """As in its container, where Modal imports it again."""
    shutil.copytree(PACKAGE, tmp_path / "lilo_modal")
    script = """
    import sys
    sys.path.insert(0, sys.argv[1])
    from modal._runtime import execution_context
    execution_context._TaskLifecycleManager._singleton = object()
    import modal, lilo_modal.app
    assert not modal.is_local()
    assert lilo_modal.app.__file__.startswith(sys.argv[1])
    """
    subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(script), str(tmp_path)], check=True
    )


def test_image_installs_what_there_is() -> None:
    """The packages, from the same files as the Docker image, but for its lock."""
    copied = [line for line in docker().all("COPY") if not line.startswith("--from")]
    sources = {source for line in copied for source in line.split()[:-1]}
    assert set(lilo_modal.app.DISTRIBUTION) == sources - {"requirements.lock"}
    assert all((ROOT / name).exists() for name in lilo_modal.app.DISTRIBUTION)


def docker() -> Dockerfile:
    return Dockerfile.read(ROOT / "deploy" / "docker" / "Dockerfile")


def test_page_names_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands name the app's module and the extra; the control plane's snippet makes a route,
    by way of the same Dict as the app."""
    told = commands(FOLDER / "README.md")
    assert "modal deploy -m lilo_modal.app" in told
    assert any("[modal" in line for line in told)
    start, control = snippets(FOLDER / "README.md", "python")
    names: dict[str, Any] = {}
    exec(compile(control, "README.md", "exec"), names)
    assert len(names["app"].routes) == 1
    assert names["engine_for"] is published.engine_for
    source = (PACKAGE / "app.py").read_text()
    for call in ('modal.Dict.from_name("lilo-engines"',):
        assert call in control
        assert call in source
    compile(start, "README.md", "exec")
    assert 'Cls.from_name("lilo-trainer", "Engine")' in start
