"""The systemd units, by systemd's own checks, and started as systemd would start them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from support.containers import activated_as, needs_root, trainer_as, volume
from support.pages import ROOT, commands
from support.performance import Measured
from support.sidecar import running, wait_until
from support.tools import tool

FOLDER = ROOT / "deploy" / "systemd"
UNITS = ("lilo-sidecar.service", "lilo-sidecar.socket")
DROP_IN = Path("trainer.service.d") / "lilo-timing.conf"
MAX_EXPOSURE = 15
"""Tenths, as `systemd-analyze security` counts; an ordinary service has 96."""
SIDECAR = 4242
TRAINER = 4243
STRANGER = 4244
TOKEN = "a-token-of-this-test"


def settings(name: str) -> dict[str, list[str]]:
    """What a unit sets, each as often as it does."""
    text = (FOLDER / name).read_text().replace("\\\n", " ")
    found: dict[str, list[str]] = {}
    for key, value in re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE):
        found.setdefault(key, []).append(" ".join(value.split()))
    return found


def setting(name: str, key: str) -> str:
    """What a unit sets once."""
    (value,) = settings(name)[key]
    return value


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The units, as they are but for where the sidecar is, beside a trainer's."""
    for name in UNITS:
        shutil.copy(FOLDER / name, tmp_path)
    (tmp_path / DROP_IN).parent.mkdir()
    shutil.copy(FOLDER / DROP_IN, tmp_path / DROP_IN)
    service = tmp_path / "lilo-sidecar.service"
    text = service.read_text()
    assert text.count("ExecStart=/opt/lilo/bin/") == 1
    service.write_text(text.replace("/opt/lilo/bin/", f"{Path(sys.executable).parent}/"))
    (tmp_path / "trainer.service").write_text("[Service]\nExecStart=/bin/true\n")
    return tmp_path


def verify(place: Path) -> str:
    """What `systemd-analyze verify` has to say. A key that it does not know makes no failure of
    it, only a line."""
    names = [*UNITS, "trainer.service"]
    done = subprocess.run(
        [
            tool("systemd-analyze", "systemd"),
            "verify",
            "--man=no",
            *(f"./{name}" for name in names),
        ],
        cwd=place,
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{place}:"},
        capture_output=True,
        text=True,
    )
    return done.stdout + done.stderr + (f"status {done.returncode}" if done.returncode else "")


def test_units_are_valid(installed: Path) -> None:
    """systemd finds nothing to say about them, the trainer's with the drop-in included."""
    assert verify(installed) == ""


@pytest.mark.parametrize("name", [*UNITS, str(DROP_IN)])
def test_a_misspelled_setting_would_be_found(installed: Path, name: str) -> None:
    """In each of the files."""
    section = "Socket" if name.endswith(".socket") else "Service"
    with (installed / name).open("a") as file:
        file.write(f"[{section}]\nNoSuchSetting=1\n")
    assert "NoSuchSetting" in verify(installed)


def test_service_is_exposed_to_little(installed: Path) -> None:
    """By systemd's own count of what a service is not kept from."""
    analyze = [tool("systemd-analyze", "systemd"), "security", "--offline=true"]
    command = [*analyze, f"--threshold={MAX_EXPOSURE}", "./lilo-sidecar.service"]
    done = subprocess.run(command, cwd=installed, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Overall exposure level for lilo-sidecar.service" in done.stdout


def test_users_are_told_apart() -> None:
    """A user namespace of its own would make one uid of all that connect."""
    assert "PrivateUsers" not in settings("lilo-sidecar.service")


def test_limits_hold_what_was_measured() -> None:
    """Half as much again as a full one takes, and half a core for at least 5,000
    commands of four events a second."""
    measured = Measured()
    assert setting("lilo-sidecar.service", "MemoryMax") == "128M"
    assert measured.full_mib * 1.5 < 128
    assert setting("lilo-sidecar.service", "CPUQuota") == "50%"
    assert measured.events_per_core * 0.5 > 4 * 5_000


@needs_root
def test_units_start_a_sidecar_for_the_trainer(tmp_path: Path) -> None:
    """As systemd would: the socket made by root, with the unit's modes, and passed on; the options
    and the environment of the unit; a user of its own, which may write to its state only, gain no
    privilege and make no code. The trainer's user reports, another one is refused, and figures
    want the token."""
    assert setting("lilo-sidecar.socket", "ListenStream") == "/run/lilo/timing.sock"
    with volume(int(setting("lilo-sidecar.socket", "DirectoryMode"), 8)) as place:
        state, credentials = place / "state", place / "credentials"
        for made in (state, credentials):
            made.mkdir(mode=0o700)
            os.chown(made, SIDECAR, SIDECAR)
        (credentials / "token").write_text(TOKEN)
        (credentials / "token").chmod(0o400)
        os.chown(credentials / "token", SIDECAR, SIDECAR)
        path = place / "timing.sock"
        environment = {
            "TRAINER_USER": str(TRAINER),
            "HTTP": "127.0.0.1:0",
            "CREDENTIALS_DIRECTORY": str(credentials),
            "STATE_DIRECTORY": str(state),
        }
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            path.chmod(int(setting("lilo-sidecar.socket", "SocketMode"), 8))
            listener.listen(int(setting("lilo-sidecar.socket", "Backlog")))
            process = activated_as(
                SIDECAR,
                listener,
                *exec_start(environment),
                writable=state,
                environment={"TEST_NO_NEW_CODE": "1"},
            )
        with running(process, TOKEN) as sidecar:
            assert sidecar.socket == path
            assert sidecar.health()["journal"] == {"writing": True, "reason": None}
            with trainer_as(TRAINER, path):
                wait_until(
                    lambda: sidecar.timing(f"of-{TRAINER}"), lambda answer: bool(answer["phases"])
                )
            with trainer_as(STRANGER, path):
                sidecar.log.wait_for(lambda line: f"uid {STRANGER} may not report" in line)
            assert any(state.iterdir())
            sidecar.http.headers.clear()
            assert sidecar.http.get("/api/v1/timing").status_code == 401
            assert sidecar.stop() == 0
        assert len(sidecar.log.rest()) == 1, sidecar.log.lines
        assert path.is_socket()  # systemd's own


def exec_start(environment: dict[str, str]) -> list[str]:
    """The arguments of the service's command, as systemd makes them."""
    program, *arguments = shlex.split(setting("lilo-sidecar.service", "ExecStart"))
    assert program == "/opt/lilo/bin/lilo-sidecar"
    given = dict(line.split("=", 1) for line in settings("lilo-sidecar.service")["Environment"])
    assert set(given) == {"TRAINER_USER", "HTTP"}
    return [re.sub(r"\$\{(\w+)\}", lambda found: environment[found[1]], each) for each in arguments]


def test_drop_in_names_the_socket() -> None:
    """The one that the socket unit makes; the trainer only wants it."""
    path = setting("lilo-sidecar.socket", "ListenStream")
    assert setting(str(DROP_IN), "Environment") == f"LILO_TIMING_SOCKET={path}"
    assert setting(str(DROP_IN), "Wants") == "lilo-sidecar.socket"
    assert "Requires" not in settings(str(DROP_IN))


def test_page_installs_what_the_units_need(tmp_path: Path) -> None:
    """The commands of the page, with /etc somewhere else: after them the units are where systemd
    looks, the token is root's alone, and what the service runs is what pip was told to make."""
    told = commands(FOLDER / "README.md")
    files = [line for line in told if line.startswith(("install", "(umask"))]
    assert len(files) == 4
    script = "\n".join(["set -e", *(line.replace("/etc/", f"{tmp_path}/etc/") for line in files)])
    done = subprocess.run(["sh", "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    for name in UNITS:
        assert (tmp_path / "etc/systemd/system" / name).read_bytes() == (FOLDER / name).read_bytes()
    assert (tmp_path / "etc/systemd/system/my-trainer.service.d/lilo-timing.conf").is_file()
    source = setting("lilo-sidecar.service", "LoadCredential").removeprefix("token:")
    token = tmp_path / source.removeprefix("/")
    assert len(token.read_text().strip()) == 64
    assert token.stat().st_mode & 0o777 == 0o600
    assert token.parent.stat().st_mode & 0o777 == 0o700
    assert "python3 -m venv /opt/lilo" in told
    assert "/opt/lilo/bin/pip install '.[sidecar]'" in told
