"""The backend as a process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest


@pytest.mark.usefixtures("timing_socket")
def test_the_backend_ends_with_whoever_started_it(tmp_path: Path) -> None:
    """It says when it is ready, answers /healthz, refuses nonsense in JSON, and ends when its
    standard input closes: so it cannot outlive a trainer that was killed."""
    command = [sys.executable, "-m", "lilo_local.backend", "--directory", str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert ready["event"] == "lilo_local_backend_ready"
        with httpx.Client(base_url=ready["http"], trust_env=False) as client:
            health = client.get("/healthz").json()
            assert health["status"] == "ok"
            assert health["model"]["vocabulary"] == 256
            for answer, status, message in (
                (client.post("/create", json={}), 400, "the body lacks 'adapter'"),
                (client.post("/create", content=b"[]"), 400, "the body must be a JSON object"),
                (client.post("/delete", json={"adapter": "x"}), 409, "there is no adapter x"),
                (client.get("/nothing"), 404, "Not Found"),
                (client.get("/create"), 405, "Method Not Allowed"),
            ):
                assert (answer.status_code, answer.json()["message"]) == (status, message)
            process.stdin.close()
            assert process.wait(10) == 0
