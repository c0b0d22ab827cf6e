"""The whole deployment with two trainers, as processes: everything through HTTP, as tenants do."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from lilo_local.demo.deployment import Deployment
from lilo_local.demo.processes import ChildFailedError, Inbox
from lilo_local.tenant.client import OperationFailedError, TrainingClient
from support.accumulator import FILE_VARIABLE, assert_agree, read_all
from support.local_engine import data
from support.marked_processes import MARK, assert_all_end, marked
from support.otlp_receiver import OtlpReceiver, otlp_receiver
from support.sidecar import wait_until

OBSERVER = ("--observer", "support.accumulator:from_environment")


@pytest.fixture(scope="module")
def here() -> Iterator[Path]:
    """A directory with a short path: sockets are in it."""
    directory = Path(tempfile.mkdtemp(prefix="lt-"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(directory))
        patch.setenv(MARK, directory.name)
        patch.setenv(FILE_VARIABLE, str(directory))
        patch.setenv("NO_PROXY", "127.0.0.1")
        tests = str(Path(__file__).parents[1])
        patch.setenv("PYTHONPATH", os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")]))
        patch.setattr(tempfile, "tempdir", None)  # chosen anew, from TMPDIR
        yield directory
        patch.setattr(tempfile, "tempdir", None)
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def traces(here: Path) -> Iterator[OtlpReceiver]:
    """What the environment of the deployment says to export to."""
    with otlp_receiver() as receiver, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")  # milliseconds; 5,000 by default
        yield receiver


@pytest.fixture(scope="module")
def deployment(here: Path, traces: OtlpReceiver) -> Iterator[Deployment]:
    """Two trainers and a control plane."""
    with Deployment(
        trainers=2, tenants=["alice", "bob"], inbox=Inbox(), trainer_options=OBSERVER
    ) as running:
        yield running
    assert_all_end(here.name)
    assert [path.name for path in here.iterdir() if path.suffix != ".json"] == []


class Tenant:
    """One tenant's client, and its raw requests."""

    def __init__(self, deployment: Deployment, name: str) -> None:
        key = deployment.tenant_keys.get(name, deployment.operator_key)
        self.client = TrainingClient(deployment.url, key)
        self.http = httpx.Client(
            base_url=f"{deployment.url}/api/v1/",
            headers={"X-API-Key": key},
            timeout=30,
            # A server that refuses a request before its body closes the connection behind it,
            # which may be after the next one was sent on it.
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    def step(self) -> None:
        """One training step."""
        self.client.submit("forward_backward", data(4, 6))
        self.client.run("optim_step", {})

    def timing(self, complete: Callable[[dict[str, Any]], bool] = bool) -> dict[str, Any]:
        """The timing answer's phases, once they are ``complete``: what just happened takes a
        twentieth of a second to arrive."""
        deadline = time.monotonic() + 10
        while True:
            answer = self.http.get("timing", params={"model_id": self.client.model_id})
            assert answer.status_code == 200, answer.text
            phases: dict[str, Any] = answer.json()["phases"]
            if complete(phases):
                return phases
            assert time.monotonic() < deadline, phases
            time.sleep(0.02)

    def close(self) -> None:
        self.client.close()
        self.http.close()


@pytest.fixture(scope="module")
def alice(deployment: Deployment) -> Iterator[Tenant]:
    """Has a model, and took two steps."""
    tenant = Tenant(deployment, "alice")
    tenant.client.create_model()
    for _ in range(2):
        tenant.step()
    yield tenant
    tenant.close()


@pytest.fixture(scope="module")
def bob(deployment: Deployment, alice: Tenant) -> Iterator[Tenant]:
    """Has a model, and took three steps; came after alice."""
    tenant = Tenant(deployment, "bob")
    tenant.client.create_model()
    for _ in range(3):
        tenant.step()
    yield tenant
    tenant.close()


@pytest.fixture(scope="module")
def operator(deployment: Deployment) -> Iterator[Tenant]:
    tenant = Tenant(deployment, "operator")
    yield tenant
    tenant.close()


def count_of(phases: dict[str, Any], phase: str) -> int:
    """Its records; 0 while none has arrived."""
    return int(phases[phase]["count"]) if phase in phases else 0


def is_whole(phases: dict[str, Any]) -> bool:
    """Whether the model's last command is in them, and the last that the backend has to say of it,
    which comes by a way of its own. Each of the two ways keeps the order."""
    return {"save_weights.persist", "save_weights.device"} <= phases.keys()


def sidecar_phases(deployment: Deployment, trainer: str, model_id: str) -> dict[str, Any]:
    """What a trainer's sidecar itself says of a model."""
    where = deployment.trainers[trainer]
    answer = httpx.get(
        f"{where['sidecar']}/api/v1/timing",
        params={"model_id": model_id},
        headers={"Authorization": f"Bearer {where['token']}"},
    )
    phases: dict[str, Any] = answer.raise_for_status().json()["phases"]
    return phases


def test_each_model_gets_the_numbers_of_its_own_trainer(
    deployment: Deployment, alice: Tenant, bob: Tenant, operator: Tenant
) -> None:
    """Two models are on two trainers, and the control plane's answer for each comes from the one
    that has it."""
    trainers = operator.http.get("trainers").json()["trainers"]
    assert {t["name"]: t["models"] for t in trainers} == {"trainer-1": 1, "trainer-2": 1}
    for tenant, steps in ((alice, 2), (bob, 3)):
        phases = tenant.timing(lambda p, n=steps: count_of(p, "optim_step.execute") == n)  # type: ignore[misc]
        assert phases["forward_backward.execute"]["count"] == steps
        has_it = [
            name
            for name in deployment.trainers
            if sidecar_phases(deployment, name, tenant.client.model_id)
        ]
        assert len(has_it) == 1
    assert sidecar_phases(deployment, has_it[0], alice.client.model_id) == {}


def test_gauges_mean_what_they_say(alice: Tenant) -> None:
    """The backend was ready first, then the trainer served, then it had a model: in seconds since
    the process started, which imported and waited for a backend that loads torch."""
    params = {"model_id": alice.client.model_id}
    gauges = alice.http.get("timing", params=params).json()["gauges"]
    order = ["backend_ready", "serving_ready", "first_model_ready"]
    times = [gauges[f"trainer.{name}_s"] for name in order]
    assert 0.5 < times[0] <= times[1] < times[2] < 120


def test_the_operator_sees_every_trainers_latest(operator: Tenant, alice: Tenant) -> None:
    """The poller's answer of each trainer, its age and the last error."""
    deadline = time.monotonic() + 10
    while True:
        trainers = operator.http.get("trainers").json()["trainers"]
        if all(t["answer"] is not None and t["error"] is None for t in trainers):
            break
        assert time.monotonic() < deadline, trainers
        time.sleep(0.05)
    for trainer in trainers:
        assert trainer["answer"]["model_id"] == "*"
        assert trainer["age_s"] >= 0
    refused = alice.http.get("trainers")
    assert (refused.status_code, refused.json()["error"]) == (403, "operators_only")


def test_anothers_model_is_as_unknown_as_none(alice: Tenant, bob: Tenant, operator: Tenant) -> None:
    """Whatever a tenant tries with another's model, the answer is the one for a model that does
    not exist; the operator may read its timing."""
    for model_id in (alice.client.model_id, "no-such-model"):
        attempts = [
            bob.http.get("timing", params={"model_id": model_id}),
            bob.http.get("timing", params={"model_id": model_id, "reset": "true"}),
            bob.http.get(f"futures/{model_id}:1"),
            bob.http.post(f"models/{model_id}/operations", json={"seq_id": 9, "kind": "forward"}),
            bob.http.delete(f"models/{model_id}"),
        ]
        for answer in attempts:
            assert answer.status_code == 404, answer.request.url
            assert answer.json() == {
                "error": "unknown_model",
                "message": f"there is no model {model_id}",
            }
    assert bob.http.get("models").json() == {"models": [bob.client.model_id]}
    params = {"model_id": alice.client.model_id}
    assert operator.http.get("timing", params=params).json()["phases"] != {}
    assert alice.timing()["forward_backward.execute"]["count"] == 2


def test_the_aggregate_is_not_a_tenants(alice: Tenant) -> None:
    """Neither by its name nor by leaving the model out, nor beside a model of one's own."""
    own = alice.client.model_id
    for query in ("", "?model_id=*", f"?model_id={own}&model_id=*"):
        answer = alice.http.get(f"timing{query}")
        assert 400 <= answer.status_code < 500, query
        assert "phases" not in answer.json()


def test_without_its_key_or_token_nothing_answers(deployment: Deployment, alice: Tenant) -> None:
    """The control plane needs an API key, a trainer and its sidecar their token; only whether
    they live is open."""
    model_id = alice.client.model_id
    trainer = deployment.trainers["trainer-1"]
    keys: list[dict[bytes, bytes]] = [{}, {b"X-API-Key": b"wrong"}, {b"X-API-Key": b"\xc3\xa9"}]
    for key in keys:
        for path in ("timing", "models", "trainers", "nothing"):
            answer = httpx.get(f"{deployment.url}/api/v1/{path}", headers=key)
            assert (answer.status_code, answer.json()["error"]) == (401, "unauthorized")
    for url in (f"{trainer['url']}/futures/{model_id}:1", f"{trainer['sidecar']}/api/v1/timing"):
        assert httpx.get(url).status_code == 401
    assert httpx.get(f"{deployment.url}/healthz").json() == {"status": "ok"}


def test_errors_are_told_to_the_tenant(alice: Tenant) -> None:
    """A refused command names what is wrong; a failed one says why in its result; neither is
    retried for ever."""
    with pytest.raises(OperationFailedError, match="kind must be one of forward"):
        alice.client.submit("dance", {})
    alice.client._submitted -= 1
    with pytest.raises(OperationFailedError, match="has no gradient; call forward_backward first"):
        alice.client.run("optim_step", {})


def test_a_tenants_models_are_bounded(bob: Tenant, operator: Tenant) -> None:
    """Creating one too many is refused with the bound; unloading makes room."""
    created = []
    while (answer := operator.http.post("models", json={})).status_code == 202:
        created.append(answer.json())
        assert len(created) <= 8
    assert answer.status_code == 429
    assert "at most 8 models at once; unload one" in answer.json()["message"]
    for each in created:
        operator.http.get(f"futures/{each['request_id']}?wait=10")
        assert operator.http.delete(f"models/{each['model_id']}").status_code == 204
    assert operator.http.get("models").json() == {"models": []}


def test_figures_agree_with_an_accumulator_in_the_trainer(
    here: Path, deployment: Deployment
) -> None:
    """One answer for everything a model did, of every kind, against a second observer of the same
    engine that added up for itself."""
    tenant = Tenant(deployment, "bob")
    tenant.client.create_model()
    for _ in range(3):
        tenant.step()
    tenant.client.run("forward", data(4))
    tenant.client.run("save_weights_for_sampler", {"name": "one"})
    with pytest.raises(OperationFailedError):
        tenant.client.run("optim_step", {})
    tenant.client.run("save_weights", {"name": "one"})
    phases = tenant.timing(is_whole)
    tenant.client.unload()
    tenant.close()
    accumulated = read_all(here)[tenant.client.model_id]
    assert len(accumulated) == 14
    assert_agree(phases, accumulated)


def test_the_environment_turns_traces_on(deployment: Deployment, traces: OtlpReceiver) -> None:
    """Beside the timing observer and the other one: a trace of every command, and every batch
    linked to its commands."""
    tenant = Tenant(deployment, "bob")
    model_id = tenant.client.create_model()
    tenant.step()
    tenant.client.unload()
    tenant.close()
    ids = {f"{model_id}:{seq}" for seq in (1, 2)}
    traces.wait_for(lambda: ids <= set(traces.commands()))
    commands = traces.commands()
    for request_id in ids:
        command = commands[request_id]
        assert command.service == "lilo-trainer"
        (batch,) = [span for span in traces.spans if command.span_id in span.links]
        assert batch.name == command.name
        assert batch.attributes["lilo.lane"] == "gpu"
        assert command.start <= batch.start <= batch.end <= command.end


def test_what_cannot_start_says_why_and_leaves_nothing(here: Path, deployment: Deployment) -> None:
    """A trainer that fails at its start ends the whole start; its own words are in the error."""
    before = set(marked(here.name))
    broken = Deployment(
        trainers=1, tenants=[], inbox=Inbox(), trainer_options=("--observer", "nowhere:at_all")
    )
    with pytest.raises(ChildFailedError) as failure, broken:
        pass
    assert "trainer-1 ended while it was starting" in str(failure.value)
    assert "No module named 'nowhere'" in str(failure.value)
    # What was killed below it takes a moment to be gone.
    wait_until(lambda: set(marked(here.name)), before.__eq__)


def test_a_killed_trainer_takes_its_backend_along_and_nobody_elses_timing(
    here: Path, deployment: Deployment, alice: Tenant, bob: Tenant, operator: Tenant
) -> None:
    """Its models answer that it is not reachable; models elsewhere go on; the operator sees the
    error; nothing of it is left running."""
    directory = deployment.children["trainer-1"].log.with_suffix("")

    def of_it() -> dict[int, str]:
        return {pid: line for pid, line in marked(here.name).items() if str(directory) in line}

    assert len(of_it()) >= 3  # the trainer, its backend, its sidecar, and what runs the two
    (trainer,) = [pid for pid, line in of_it().items() if line.split()[2] == "lilo_local.trainer"]
    os.kill(trainer, signal.SIGKILL)
    deadline = time.monotonic() + 15
    while left := of_it():
        assert time.monotonic() < deadline, left
        time.sleep(0.02)
    answer = alice.http.get("timing", params={"model_id": alice.client.model_id})
    assert answer.status_code == 503
    answer = alice.http.get(f"futures/{alice.client.model_id}:1")
    assert (answer.status_code, answer.json()["error"]) == (503, "trainer_unreachable")
    bob.step()
    assert bob.timing(lambda phases: count_of(phases, "optim_step.execute") == 4)
    deadline = time.monotonic() + 15
    while not operator.http.get("trainers").json()["trainers"][0]["error"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
