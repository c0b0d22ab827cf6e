"""A real Prometheus server for tests, with the configuration that is shipped, made quick."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from support.sidecar import Output
from support.tools import tool

SHIPPED = Path(__file__).parents[2] / "deploy" / "prometheus"
_LISTENING = re.compile(r'msg="Listening on" address=(\S+)')


class Prometheus:
    """A running server."""

    def __init__(self, url: str) -> None:
        self.http = httpx.Client(base_url=url, trust_env=False, timeout=20)

    def ask(self, path: str, **params: str | Sequence[str]) -> Any:
        """The data of an answer of its API, which must be a good one."""
        answer = self.http.get(f"/api/v1/{path}", params=params).json()
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, expression: str) -> dict[tuple[str, ...], float]:
        """An instant vector: the values by the labels' values, in the order of the labels' names,
        without the metric's own, the job's and the target's."""
        left_out = {"__name__", "job", "instance"}
        return {
            tuple(v for k, v in sorted(one["metric"].items()) if k not in left_out): float(
                one["value"][1]
            )
            for one in self.ask("query", query=expression)["result"]
        }

    def targets(self) -> dict[str, dict[str, Any]]:
        """The targets that it scrapes, by instance."""
        found = self.ask("targets", state="active")["activeTargets"]
        return {target["labels"]["instance"]: target for target in found}

    def rules(self) -> dict[str, dict[str, Any]]:
        """All rules with their last evaluation, by name."""
        groups = self.ask("rules")["groups"]
        return {rule["name"]: rule for group in groups for rule in group["rules"]}


@contextlib.contextmanager
def prometheus(place: Path, targets: Mapping[str, str], token: str) -> Iterator[Prometheus]:
    """One that scrapes ``targets`` (the value of their label ``trainer`` by their address), with
    the shipped files. Only times are shorter: it looks each second, and alerts wait for one."""
    executable = tool("prometheus", "prometheus")
    config = place / "prometheus"
    shutil.copytree(SHIPPED, config)
    quick = re.sub(r"(_interval|_timeout): \w+", r"\1: 1s", (config / "prometheus.yml").read_text())
    (config / "prometheus.yml").write_text(quick)
    alerts = config / "lilo.alerts.yml"
    alerts.write_text(re.sub(r"\bfor: \w+", "for: 1s", alerts.read_text()))
    (config / "lilo-token").write_text(token + "\n")
    groups = [
        {"targets": [address], "labels": {"trainer": trainer}}
        for address, trainer in targets.items()
    ]
    (config / "targets" / "trainers.json").write_text(json.dumps(groups))
    process = subprocess.Popen(
        [
            *(executable, f"--config.file={config / 'prometheus.yml'}"),
            *(f"--storage.tsdb.path={place / 'data'}", "--web.listen-address=127.0.0.1:0"),
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        log = Output(process.stderr)
        line = log.wait_for(lambda line: _LISTENING.search(line) is not None)
        log.wait_for(lambda line: "Server is ready" in line)
        found = _LISTENING.search(line)
        assert found is not None
        server = Prometheus(f"http://{found[1]}")
        with server.http:
            yield server
    finally:
        process.kill()
        process.wait()
        log.rest()
