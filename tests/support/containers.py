"""Processes as a container has them: of a user of their own, with a root that cannot be written to
and a volume that they share."""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from support.tools import tool

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

# The interpreter may be where no other user can read it: all is imported before.
_IMPORT_SIDECAR = """
import os, sys
if sys.argv[3]:
    sys.path.insert(0, sys.argv[3])
import encodings.ascii, encodings.latin_1, encodings.idna, pkgutil, lilo_sidecar
for module in pkgutil.walk_packages(lilo_sidecar.__path__, "lilo_sidecar."):
    if not module.name.endswith("__main__"):
        __import__(module.name)
"""
_IMPORT_HOOK = """
import os, sys
import encodings.ascii, encodings.latin_1, encodings.idna, logging, pathlib, lilo_engine_hook
logging.basicConfig(level="WARNING")
"""
_BECOME = """
uid, gid = int(sys.argv[1]), int(sys.argv[2])
if os.environ.pop("TEST_NO_NEW_CODE", ""):
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    # PR_SET_NO_NEW_PRIVS, PR_SET_MDWE: as NoNewPrivileges= and MemoryDenyWriteExecute= have it.
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    libc.prctl(65, 1, 0, 0, 0)  # as of Linux 6.3
if "LISTEN_FDS" in os.environ:
    os.environ["LISTEN_PID"] = str(os.getpid())
os.setgroups([])
os.setgid(gid)
os.setuid(uid)
os.umask(0o077)
del sys.argv[1:4]
"""
_SERVE = "sys.exit(sys.modules['lilo_sidecar.cli'].main())"
_REPORT = """
timing = lilo_engine_hook.TimingObserver()
timing.span(f"of-{os.getuid()}", "forward_backward", "gpu", 0.0, 1.0)
sys.stdin.read()
timing.close()
"""


@contextlib.contextmanager
def volume(mode: int, uid: int = 0, gid: int = 0) -> Iterator[Path]:
    """The root of a new volume, which all can reach; its path is short enough for a socket's."""
    with tempfile.TemporaryDirectory() as around:
        Path(around).chmod(0o711)
        root = Path(around) / "volume"
        root.mkdir()
        os.chown(root, uid, gid)
        root.chmod(mode)  # last: giving it away clears the bits for user and group
        yield root


def sidecar_as(
    uid: int,
    *arguments: str | Path,
    gid: int | None = None,
    path: Path | None = None,
    writable: Path | None = None,
    environment: Mapping[str, str] | None = None,
    **options: Any,
) -> subprocess.Popen[str]:
    """`lilo-sidecar` of that user; installed at ``path`` instead of here; with nothing but
    ``writable`` to write to, as far as the root's file system goes."""
    return _start(
        _IMPORT_SIDECAR + _BECOME + _SERVE,
        uid,
        list(map(str, arguments)),
        gid=uid if gid is None else gid,
        path=path,
        writable=writable,
        environment=environment or {},
        **options,
    )


def activated_as(
    uid: int,
    listener: socket.socket,
    *arguments: str | Path,
    environment: Mapping[str, str] | None = None,
    **options: Any,
) -> subprocess.Popen[str]:
    """`lilo-sidecar` of that user, started with the socket as systemd starts it: as its descriptor
    3, and named by the variables."""
    kept = os.dup(3) if _is_open(3) else None
    os.dup2(listener.fileno(), 3)
    try:
        passed = {"LISTEN_FDS": "1", **(environment or {})}
        return sidecar_as(uid, *arguments, environment=passed, pass_fds=[3], **options)
    finally:
        if kept is None:
            os.close(3)
        else:
            os.dup2(kept, 3)
            os.close(kept)


def _is_open(descriptor: int) -> bool:
    """Whether this process has it in use."""
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def trainer_as(uid: int, path: Path) -> Iterator[subprocess.Popen[str]]:
    """A trainer of that user, which reports one execution of the model ``of-UID`` and stays."""
    environment = {"LILO_TIMING_SOCKET": str(path)}
    process = _start(
        _IMPORT_HOOK + _BECOME + _REPORT,
        uid,
        [],
        gid=uid,
        environment=environment,
        stdin=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _start(
    script: str,
    uid: int,
    arguments: Sequence[str],
    *,
    gid: int,
    path: Path | None = None,
    writable: Path | None = None,
    environment: Mapping[str, str],
    **options: Any,
) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, str(uid), str(gid), str(path or ""), *arguments]
    if writable is not None:
        place = shlex.quote(str(writable))
        only = f'mount --bind {place} {place} && mount -o remount,bind,ro / && exec "$@"'
        unshare = tool("unshare", "util-linux")
        command = [unshare, "--mount", "--propagation", "private", "sh", "-c", only, "sh", *command]
    process: subprocess.Popen[str] = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
        env={**os.environ, **environment},
        **options,
    )
    return process
