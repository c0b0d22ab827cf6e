"""The shipped files of `deploy/prometheus`, by Prometheus' own tool."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from lilo_engine_hook import wire
from support.feed import Feed, begin, span
from support.prometheus import SHIPPED
from support.site import Site
from support.tools import tool

RULES = ("lilo.rules.yml", "lilo.alerts.yml")


def promtool(*arguments: str | Path, said: str = "", cwd: Path = SHIPPED) -> str:
    """Run it, which must succeed; what it prints."""
    done = subprocess.run(
        [tool("promtool", "prometheus"), *arguments],
        cwd=cwd,
        input=said,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_rules_are_well_formed() -> None:
    """Nothing in them that the tool objects to."""
    promtool("check", "rules", "--lint=all", "--lint-fatal", *RULES)


def test_rules_do_what_their_tests_say() -> None:
    """Values of the recorded series, and which alerts fire and which do not."""
    promtool("test", "rules", "lilo.tests.yml")


def test_every_rule_has_a_test() -> None:
    """A recorded series is asked for, an alert fires for somebody, in the rules' own tests."""
    tests = (SHIPPED / "lilo.tests.yml").read_text()
    recorded, alerts = (
        re.findall(r"- (?:record|alert): (\S+)", (SHIPPED / name).read_text()) for name in RULES
    )
    assert [name for name in recorded if f"round({name}" not in tests] == []
    assert [name for name in alerts if f'alertname="{name}"' not in tests] == []
    assert len(recorded) >= 5
    assert len(alerts) >= 5


def test_every_alert_says_what_and_what_to_do() -> None:
    """Each has a severity, one line, and a text that names where to look."""
    text = (SHIPPED / "lilo.alerts.yml").read_text()
    alerts = text.split("- alert: ")[1:]
    for alert in alerts:
        assert re.search(r"severity: (warning|critical)\n", alert), alert
        summary = re.search(r"summary: (.+)\n", alert)
        assert summary is not None
        assert "$labels.instance" in summary[1]
        _, _, description = alert.partition("description: >-\n")
        assert len(description.split()) > 20, alert


@pytest.mark.parametrize("per_model", [True, False])
def test_configuration_is_valid(tmp_path: Path, per_model: bool) -> None:
    """As it is, and with the lines taken in that leave the figures per model out."""
    shutil.copytree(SHIPPED, tmp_path / "prometheus")
    (tmp_path / "prometheus" / "lilo-token").write_text("s3cret\n")
    if not per_model:
        config = tmp_path / "prometheus" / "prometheus.yml"
        head, mark, tail = config.read_text().partition("    # metric_relabel_configs:")
        lines = (mark + tail).replace("    # ", "    ")
        assert "action: drop" in lines
        config.write_text(head + lines)
    said = promtool("check", "config", "prometheus.yml", cwd=tmp_path / "prometheus")
    assert "SUCCESS" in said


def test_snippets_of_the_page_are_valid(tmp_path: Path) -> None:
    """Each scrape configuration in the page can be put into the file in place of its own."""
    page = (SHIPPED / "README.md").read_text()
    snippets = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert snippets
    config = tmp_path / "prometheus.yml"
    (tmp_path / "lilo-token").write_text("s3cret\n")
    for snippet in snippets:
        config.write_text("scrape_configs:\n  - job_name: lilo-timing\n" + snippet)
        promtool("check", "config", "--lint=all", "--lint-fatal", str(config))


def test_metrics_are_as_the_tool_wants_them() -> None:
    """Names, types, units and help texts follow the conventions; in the text format, since the
    tool reads no other."""
    site = Site()
    feed = Feed(site.core)
    feed(begin("m", 1, 0.0), span(["m"], 1.0, 2.0, ids=["m:1"]), wire.Gauge(3.0, "backend_ready"))
    assert promtool("check", "metrics", said=site.get("/metrics").text) == ""
