"""The manifests: valid by the schemas of Kubernetes, whole, and started as a kubelet would."""

from __future__ import annotations

import ast
import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import kubernetes_validate
import pytest
import yaml

from lilo_timing import SidecarEndpoint
from support.containers import needs_root, sidecar_as, trainer_as, volume
from support.docker import Dockerfile
from support.pages import ROOT, commands, snippets
from support.performance import Measured
from support.sidecar import running, wait_until
from support.tools import tool

FOLDER = ROOT / "deploy" / "kubernetes"
FILES = sorted(FOLDER.glob("*.yaml"))
OLDEST, NEWEST = "1.29", "1.37"
"""Kubernetes versions: the first with native sidecars, and the newest whose schema is at hand."""
LINT = "{extends: default, rules: {line-length: {max: 100}}}"
TOKEN = "a-token-of-this-test"
MIB = {"Mi": 1, "Gi": 1024}


def documents() -> list[dict[str, Any]]:
    """All that is applied."""
    return [found for file in FILES for found in yaml.safe_load_all(file.read_text())]


def of_kind(kind: str) -> dict[str, Any]:
    (found,) = [each for each in documents() if each["kind"] == kind]
    return found


POD = of_kind("StatefulSet")["spec"]["template"]["spec"]
(SIDECAR,) = POD["initContainers"]
(TRAINER,) = POD["containers"]
UID = POD["securityContext"]["runAsUser"]
GID = POD["securityContext"]["fsGroup"]


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_manifests_are_valid(version: str) -> None:
    """By the API's own schema, in which nothing is unknown."""
    assert len(documents()) == 2
    for document in documents():
        kubernetes_validate.validate(document, version, strict=True)


def test_a_misspelled_field_would_be_found() -> None:
    """In the sidecar's container, for one."""
    document = of_kind("StatefulSet")
    document["spec"]["template"]["spec"]["initContainers"][0]["restartPolicies"] = "Always"
    with pytest.raises(kubernetes_validate.ValidationError, match="restartPolicies"):
        kubernetes_validate.validate(document, NEWEST, strict=True)


def test_yaml_is_tidy() -> None:
    """yamllint has nothing to say: no key twice, for one, of which the last would count."""
    lint = [tool("yamllint", "yamllint"), "--strict", "-d", LINT]
    done = subprocess.run([*lint, *map(str, FILES)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_words_that_no_schema_checks() -> None:
    """A misspelled one of these is an error of the API server's only, or makes a sidecar an init
    container that the trainer waits for without end."""
    assert SIDECAR["restartPolicy"] == "Always"
    assert SIDECAR["securityContext"]["capabilities"]["drop"] == ["ALL"]
    assert POD["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert of_kind("Service")["spec"]["clusterIP"] == "None"


def test_names_lead_somewhere() -> None:
    """Volumes, ports, labels, the Service, the Secret: each name that is referred to is there."""
    volumes = {each["name"] for each in POD["volumes"]}
    for container in (SIDECAR, TRAINER):
        assert {each["name"] for each in container["volumeMounts"]} <= volumes
    mounted = {each["name"] for c in (SIDECAR, TRAINER) for each in c["volumeMounts"]}
    assert mounted == volumes
    ports = {each["name"]: each["containerPort"] for each in SIDECAR["ports"]}
    for probe in (SIDECAR["startupProbe"], SIDECAR["livenessProbe"]):
        assert probe["httpGet"] == {"path": "/healthz", "port": "timing"}
    service, workload = of_kind("Service"), of_kind("StatefulSet")
    assert [each["targetPort"] for each in service["spec"]["ports"]] == list(ports)
    assert service["metadata"]["name"] == workload["spec"]["serviceName"]
    labels = workload["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == workload["spec"]["selector"]["matchLabels"] == labels
    assert f"--http=0.0.0.0:{ports['timing']}" in SIDECAR["args"]


def test_trainer_and_sidecar_meet() -> None:
    """The socket that the trainer is told is the one that the sidecar makes, in the volume that
    both have at the same place, but not at its root."""
    (told,) = [each["value"] for each in TRAINER["env"] if each["name"] == "LILO_TIMING_SOCKET"]
    assert f"--socket={told}" in SIDECAR["args"]
    (root,) = {
        each["mountPath"]
        for container in (SIDECAR, TRAINER)
        for each in container["volumeMounts"]
        if each["name"] == "lilo"
    }
    assert Path(root) in Path(told).parents
    assert Path(told).parent != Path(root)


def test_token_is_where_it_is_looked_for() -> None:
    """The Secret that the page makes has the key that the sidecar's option names, and a mode that
    lets the group of the volume read it, and nobody else."""
    (mount,) = [each for each in SIDECAR["volumeMounts"] if each["name"] == "token"]
    assert f"--token-file={mount['mountPath']}/token" in SIDECAR["args"]
    (secret,) = [each["secret"] for each in POD["volumes"] if each["name"] == "token"]
    assert secret["defaultMode"] == 0o440
    (make,) = [line for line in commands(FOLDER / "README.md") if "create secret" in line]
    assert f"generic {secret['secretName']} --from-literal=token=" in make
    assert "token" not in {each["name"] for each in TRAINER["volumeMounts"]}


def test_sidecar_takes_no_trainer_out_of_service() -> None:
    """A readiness probe of the sidecar's would be the pod's; nor is one that is busy restarted."""
    assert "readinessProbe" not in SIDECAR
    liveness = SIDECAR["livenessProbe"]
    assert liveness["periodSeconds"] * liveness["failureThreshold"] >= 60
    assert of_kind("Service")["spec"]["publishNotReadyAddresses"] is True


def test_limits_hold_what_was_measured() -> None:
    """A full sidecar fits what is requested, and half as much again what it is killed at; half a
    core takes in 5,000 commands of four events a second; the volume has room for the state."""
    measured, resources = Measured(), SIDECAR["resources"]
    assert measured.full_mib < mib(resources["requests"]["memory"])
    assert measured.full_mib * 1.5 < mib(resources["limits"]["memory"])
    assert measured.events_per_core * cores(resources["limits"]["cpu"]) > 4 * 5_000
    assert measured.events_per_core * cores(resources["requests"]["cpu"]) > 4 * 500
    (directory,) = [each["emptyDir"] for each in POD["volumes"] if each["name"] == "lilo"]
    assert mib(directory["sizeLimit"]) >= 2 * 32


def mib(text: str) -> int:
    return int(text[:-2]) * MIB[text[-2:]]


def cores(text: str) -> float:
    assert text.endswith("m")
    return int(text[:-1]) / 1000


def test_containers_may_do_little() -> None:
    """No root, no new privilege, no capability, nothing to write to but the volume, no account of
    the cluster's; the sidecar's image is the one that its own page builds, whose user this is."""
    assert POD["securityContext"]["runAsNonRoot"] is True
    assert POD["automountServiceAccountToken"] is False
    assert SIDECAR["securityContext"]["readOnlyRootFilesystem"] is True
    for container in (SIDECAR, TRAINER):
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
    (build,) = [
        line for line in commands(ROOT / "deploy/docker/README.md") if "docker build" in line
    ]
    assert f" -t {SIDECAR['image']} " in build
    image = Dockerfile.read(ROOT / "deploy" / "docker" / "Dockerfile")
    assert image.all("USER")[-1] == f"{UID}:{UID}"
    assert image.command("ENTRYPOINT") == ["lilo-sidecar"]


@pytest.fixture
def secret() -> Iterator[Path]:
    """A Secret's volume, as a kubelet makes it for a pod with an fsGroup: root's files, which the
    group may read, by way of links."""
    with volume(0o3777, 0, GID) as root:
        data = root / "..2026_12_02"
        data.mkdir()
        (data / "token").write_text(TOKEN)
        (data / "token").chmod(0o440)
        for made, mode in ((data, 0o2755), (data / "token", 0o440)):
            os.chown(made, 0, GID)
            made.chmod(mode)
        (root / "..data").symlink_to(data.name)
        (root / "token").symlink_to("..data/token")
        yield root


@needs_root
def test_sidecar_of_the_pod_serves_its_trainer_and_outlives_a_crash(secret: Path) -> None:
    """With the manifest's options, user and volumes: the probe is answered without a token, under
    the pod's address; the trainer reports. Killed, it leaves a socket behind, and the container
    that replaces it has the port, the socket and the figures."""
    with volume(0o2777, 0, GID) as place:
        path = place / "timing" / "timing.sock"
        with running(
            sidecar_as(UID, *arguments(place, secret), gid=GID, writable=place), TOKEN
        ) as first:
            assert first.socket == path
            port = first.url.rpartition(":")[2]
            probe = SIDECAR["startupProbe"]["httpGet"]["path"]
            pod = {"Host": f"10.1.2.3:{port}"}
            answer = httpx.get(f"http://127.0.0.1:{port}{probe}", headers=pod, trust_env=False)
            assert answer.status_code == 200
            assert answer.json()["journal"] == {"writing": True, "reason": None}
            with trainer_as(UID, path):
                reported(first.timing)
                first.stop(signal.SIGKILL)
                assert path.is_socket()
                again = sidecar_as(UID, *arguments(place, secret, port), gid=GID, writable=place)
                with running(again, TOKEN) as second:
                    reported(second.timing)
                    assert second.stop() == 0


def reported(timing: Any) -> None:
    """Wait until the trainer's one execution is counted."""
    answer = wait_until(lambda: timing(f"of-{UID}"), lambda answer: bool(answer["phases"]))
    assert answer["phases"]["forward_backward.execute"]["count"] == 1


def arguments(place: Path, secret: Path, port: str = "0") -> list[str]:
    """The manifest's, with the volumes where they are here."""
    given = [str(each) for each in SIDECAR["args"]]
    for there, here in (("=/run/lilo/", f"={place}/"), ("=/etc/lilo/", f"={secret}/")):
        assert any(there in each for each in given)
        given = [each.replace(there, here) for each in given]
    return [each.replace(":9411", f":{port}") for each in given]


@needs_root
def test_token_without_the_group_is_told(secret: Path) -> None:
    """The sidecar's one line is the one that the page explains."""
    with volume(0o777) as place:
        process = sidecar_as(UID, *arguments(place, secret), gid=UID + 1)
        out, err = process.communicate()
    assert (process.returncode, out) == (2, "")
    assert err.rstrip().endswith(f"cannot read the token file {secret}/token: Permission denied")
    assert (
        "`cannot read the token file ...: Permission denied`" in (FOLDER / "README.md").read_text()
    )


def test_engine_for_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the pod's sidecar by the Service's name and port, and a model that nobody placed is
    a LookupError, which the route answers with 404."""
    (snippet,) = snippets(FOLDER / "README.md", "python")
    monkeypatch.setenv("LILO_TIMING_TOKEN", TOKEN)
    names: dict[str, Any] = {}
    exec(compile(ast.parse(snippet), "README.md", "exec"), names)
    workload, service = of_kind("StatefulSet"), of_kind("Service")
    names["trainer_of"]["m"] = f"{workload['metadata']['name']}-0"
    endpoint = asyncio.run(names["engine_for"]("m"))
    host = f"{workload['metadata']['name']}-0.{service['metadata']['name']}"
    assert endpoint == SidecarEndpoint(
        f"http://{host}:{service['spec']['ports'][0]['port']}", TOKEN
    )
    with pytest.raises(LookupError):
        asyncio.run(names["engine_for"]("nobody's"))
    assert len(names["routes"]) == 1
