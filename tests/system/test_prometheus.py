"""A real Prometheus server, with the shipped configuration, rules and alerts, over a small fleet of
real sidecars: it scrapes them, evaluates the rules, and answers what the dashboard asks."""

from __future__ import annotations

import contextlib
import json
import math
import re
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lilo_engine_hook import wire
from support.feed import begin, finish, span
from support.producer import Producer
from support.prometheus import SHIPPED, Prometheus, prometheus
from support.sidecar import SidecarProcess, start_sidecar, wait_until

DASHBOARD = json.loads((SHIPPED.parent / "grafana" / "dashboard.json").read_text())
PARTS = ("mine", "shared_batch", "neighbors", "overhead", "persist", "client")
VARIABLES = {
    "$__rate_interval": "1m",
    "$job": ".+",
    "$instance": ".+",
    "$model": ".+",
    "${datasource}": "prometheus",
}
BEFORE = 5000
"""Rounds before the server looks for the first time: many more than come afterwards. Of a counter
that may have begun at 0 within the range, Prometheus guesses differently how much it grew."""
AT_ONCE = 100
"""Rounds in one batch: six events each, of 1,024 that a batch may have."""


class Trainer:
    """A trainer whose work is the same in each round, so that whatever the server looks at, the
    fractions are the same."""

    def __init__(self, sidecar: SidecarProcess, *, shares: bool) -> None:
        self.sidecar = sidecar
        self.address = sidecar.url.removeprefix("http://")
        self._shares = shares
        self._producer = Producer(sidecar.socket)
        self._producer.greet()
        self._rounds = 0
        self._began = time.time()

    def rounds(self, count: int) -> None:
        """Work on."""
        for done in range(0, count, AT_ONCE):
            some = range(min(AT_ONCE, count - done))
            self._producer.send(*[event for _ in some for event in self._round()])

    def _round(self) -> list[wire.Event]:
        """Two models with a command each: in one batch that begins at once, or one after the
        other and late."""
        t, seq = self._began + 8.0 * self._rounds, self._rounds + 1
        both = [f"m:{seq}", f"n:{seq}"]
        events: list[wire.Event] = [begin("m", seq, t), begin("n", seq, t)]
        if self._shares:
            events.append(span(["m", "n"], t + 0.25, t + 4.25, ids=both, n=2))
        else:
            events.append(span(["n"], t + 2.0, t + 3.0, ids=[both[1]]))
            events.append(span(["m"], t + 3.0, t + 6.0, ids=[both[0]]))
        done = t + 4.25 if self._shares else t + 6.0
        events += [finish("m", seq, done), finish("n", seq, done)]
        self._rounds += 1
        return events

    def interval(self) -> dict[str, Any]:
        """The sidecar's own figures since the last call, of all models and of each."""
        query = {"reset": "true"}
        answers = {
            model: self.sidecar.http.get("/api/v1/timing", params={**query, "model_id": model})
            for model in ("*", "m", "n")
        }
        return {model: answer.json() for model, answer in answers.items()}

    def close(self) -> None:
        self._producer.close()


class Fleet(NamedTuple):
    """What the server has looked at, and the sidecars' own answers for it."""

    server: Prometheus
    late: Trainer
    sharing: Trainer
    lonely: str
    """The address of a sidecar without a trainer."""
    gone: str
    """An address where nobody answers."""
    own: dict[str, dict[str, Any]]
    """By address, the figures of the whole rounds after the first ones."""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    places = [tmp_path_factory.mktemp(name) for name in ("late", "sharing", "lonely", "server")]
    token = places[1] / "token"
    token.write_text("s3cret-word\n")
    with (
        start_sidecar(places[0]) as one,
        start_sidecar(places[1], "--token-file", token, token="s3cret-word") as two,
        start_sidecar(places[2]) as three,
        socket.socket() as nobody,
        contextlib.ExitStack() as closing,
    ):
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        late, sharing = Trainer(one, shares=False), Trainer(two, shares=True)
        lonely = three.url.removeprefix("http://")
        gone = f"127.0.0.1:{nobody.getsockname()[1]}"
        names = {late.address: "late", sharing.address: "sharing", lonely: "lonely", gone: "gone"}
        for trainer in (late, sharing):
            closing.callback(trainer.close)
            trainer.rounds(BEFORE)
            trainer.interval()
            # Being asked settles a model's account to its last event, which otherwise the next
            # one does: the server is to see it the same way each time.
            trainer.rounds(1)
        with prometheus(places[3], names, "s3cret-word") as server:

            def work_on() -> tuple[set[str], int]:
                """Another round, and what the server has come to by now."""
                late.rounds(1)
                sharing.rounds(1)
                firing = server.query('ALERTS{alertstate="firing"}')
                recorded = server.query("lilo:overhead_fraction:rate5m")
                return {key[0] for key in firing}, len(recorded)

            # The server looks at its list of targets some seconds after it has started.
            scraped = wait_until(
                lambda: {a for a, target in server.targets().items() if target["health"] == "up"},
                lambda up: len(up) == 3,
            )
            assert scraped == {late.address, sharing.address, lonely}
            expected = {"LiloNoTrainer", "LiloSidecarDown", "LiloOverheadHigh"}
            wait_until(work_on, lambda so_far: so_far[0] >= expected and so_far[1] >= 2)
            own = {trainer.address: trainer.interval() for trainer in (late, sharing)}
            yield Fleet(server, late, sharing, lonely, gone, own)


# --- scraping ------------------------------------------------------------------------------


def test_every_sidecar_is_scraped(fleet: Fleet) -> None:
    """With its token and without, also one that has no trainer; and one that is not there is
    told from those. On a busy machine a look may take longer than the second that it is given
    here: the next one does not."""
    there = (fleet.late.address, fleet.sharing.address, fleet.lonely)
    expected = {**dict.fromkeys(there, "up"), fleet.gone: "down"}
    wait_until(
        lambda: {a: target["health"] for a, target in fleet.server.targets().items()},
        expected.__eq__,
    )
    wait_until(
        lambda: fleet.server.query("lilo_trainer_connected"),
        {("late",): 1, ("sharing",): 1, ("lonely",): 0}.__eq__,
    )


def test_the_server_is_given_openmetrics(fleet: Fleet) -> None:
    """It asks for that format, which alone tells units."""
    (told,) = fleet.server.ask(
        "targets/metadata", match_target='{trainer="late"}', metric="lilo_phase_seconds"
    )
    assert (told["type"], told["unit"]) == ("counter", "seconds")
    assert told["help"]


def test_a_wrong_token_gets_no_figures(fleet: Fleet) -> None:
    """The sidecar that has one is not scraped without it."""
    answer = fleet.sharing.sidecar.http.get("/metrics", headers={"authorization": "Bearer other"})
    assert answer.status_code == 401


# --- rules and alerts ----------------------------------------------------------------------


def test_no_rule_fails(fleet: Fleet) -> None:
    """The server has evaluated each of them, without an error."""
    wait_until(
        lambda: {name: rule["health"] for name, rule in fleet.server.rules().items()},
        lambda health: set(health.values()) == {"ok"},
    )


@pytest.mark.parametrize("which", ["late", "sharing"])
def test_recorded_series_are_the_sidecars_own_figures(fleet: Fleet, which: str) -> None:
    """Where the time goes, what waits are for, how long they are and how full batches are, as
    `/api/v1/timing` has it of the same time."""
    trainer = fleet.late if which == "late" else fleet.sharing
    own, ask = fleet.own[trainer.address], fleet.server.query
    steps = {part: sum(own[m]["step"][f"{part}_s"] for m in "mn") for part in PARTS}
    wall = sum(own[m]["step"]["wall_s"] for m in "mn")
    fractions = ask(f'lilo:step_fraction:rate5m{{trainer="{which}"}}')
    assert fractions == pytest.approx({(p, which): steps[p] / wall for p in PARTS}, rel=1e-6)
    (overhead,) = ask(f'lilo:overhead_fraction:rate5m{{trainer="{which}"}}').values()
    assert overhead == pytest.approx(steps["overhead"] / (wall - steps["client"]), rel=1e-6)
    waits = own["*"]["waits"]["forward_backward"]
    of_waits = ask(f'lilo:queue_wait_fraction:rate5m{{trainer="{which}"}}')
    total = sum(waits.values())
    expected = {(name.removesuffix("_s"), which): s / total for name, s in waits.items()}
    assert of_waits == pytest.approx(expected, rel=1e-6)
    phases = own["*"]["phases"]
    (wait,) = ask(f'lilo:queue_wait_seconds:mean5m{{trainer="{which}"}}').values()
    assert wait == pytest.approx(phases["forward_backward.queue_wait"]["mean_s"], rel=1e-6)
    (batch,) = ask(f'lilo:commands_per_batch:mean5m{{trainer="{which}"}}').values()
    assert batch == pytest.approx(phases["forward_backward.execute"]["mean_batch"], rel=1e-6)


def test_alerts_fire_for_whom_they_are_about(fleet: Fleet) -> None:
    """The sidecar without a trainer, the one that is not there, and the trainer whose lane is idle
    while commands wait; nobody else, and nothing else."""

    def firing() -> set[tuple[str, str]]:
        return {
            (alert["labels"]["alertname"], alert["labels"]["trainer"])
            for alert in fleet.server.ask("alerts")["alerts"]
            if alert["state"] == "firing"
        }

    expected = {
        ("LiloNoTrainer", "lonely"),
        ("LiloSidecarDown", "gone"),
        ("LiloOverheadHigh", "late"),
    }
    wait_until(firing, expected.__eq__)


def test_alerts_texts_are_filled_in(fleet: Fleet) -> None:
    """Each names the instance, and has its templates' values."""
    for alert in fleet.server.ask("alerts")["alerts"]:
        for text in alert["annotations"].values():
            assert "{{" not in text
            assert "error" not in text.lower()
        assert alert["labels"]["instance"] in alert["annotations"]["summary"]


# --- the dashboard -------------------------------------------------------------------------


def queries() -> list[tuple[str, str]]:
    """Of each panel its title and an expression of it, with a value for each variable."""
    found = []
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"]
            for name, value in VARIABLES.items():
                expression = expression.replace(name, value)
            assert "$" not in expression
            found.append((panel["title"], expression))
    return found


@pytest.mark.parametrize(("title", "expression"), queries())
def test_every_panel_has_something_to_show(fleet: Fleet, title: str, expression: str) -> None:
    """The server understands what a panel asks, and its answer has numbers."""
    answer = fleet.server.query(expression)
    assert answer, title
    assert all(math.isfinite(number) for number in answer.values()), answer


def test_every_variable_has_something_to_choose(fleet: Fleet) -> None:
    """What the dashboard offers are the job, the trainers and their models."""
    offered = {}
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            asked = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
            assert asked is not None
            selector = asked[1].replace("$job", ".+").replace("$instance", ".+")
            offered[variable["name"]] = fleet.server.ask(
                f"label/{asked[2]}/values", **{"match[]": selector}
            )
    assert offered["job"] == ["lilo-timing"]
    addresses = {fleet.late.address, fleet.sharing.address, fleet.lonely}
    assert set(offered["instance"]) == addresses
    assert offered["model"] == ["m", "n"]


# --- and without it ------------------------------------------------------------------------


def test_counters_survive_the_sidecar(tmp_path: Path) -> None:
    """One that is killed and started again counts on from where it was."""

    def counters(sidecar: SidecarProcess) -> list[str]:
        text = sidecar.http.get("/metrics").text
        return re.findall(r"^lilo_(?!http|ingest)\w+_total.*$", text, re.MULTILINE)

    with start_sidecar(tmp_path) as sidecar:
        trainer = Trainer(sidecar, shares=True)
        trainer.rounds(3)
        before = counters(sidecar)
        assert 'lilo_phase_records_total{phase="forward_backward.execute"} 3.0' in before
        sidecar.stop(signal.SIGKILL)
        trainer.close()
    with start_sidecar(tmp_path) as again:
        assert counters(again) == before
