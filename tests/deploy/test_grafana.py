"""The shipped dashboard, as far as it can be checked without Grafana; what its panels ask is asked
of a real server in `tests/system/test_prometheus.py`."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "deploy" / "grafana"
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text())
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
SHOWN = [panel for panel in PANELS if panel["type"] != "row"]
COLUMNS = 24
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def test_dashboard_is_for_a_current_grafana() -> None:
    """It is made anew from the file (no id of another server), and found again by its uid."""
    assert DASHBOARD["id"] is None
    assert DASHBOARD["uid"] == "lilo-timing"
    assert DASHBOARD["schemaVersion"] >= 39


def test_panels_are_told_apart() -> None:
    """Each has an id and a title of its own."""
    for field in ("id", "title"):
        each = [panel[field] for panel in PANELS]
        assert len(set(each)) == len(each), field


def test_panels_lie_side_by_side() -> None:
    """None is outside, and none covers another."""
    for panel in PANELS:
        place = panel["gridPos"]
        assert place["x"] >= 0
        assert place["x"] + place["w"] <= COLUMNS
    for one, two in itertools.combinations([panel["gridPos"] for panel in PANELS], 2):
        beside = one["x"] + one["w"] <= two["x"] or two["x"] + two["w"] <= one["x"]
        below = one["y"] + one["h"] <= two["y"] or two["y"] + two["h"] <= one["y"]
        assert beside or below, (one, two)


@pytest.mark.parametrize("panel", SHOWN, ids=lambda panel: panel["title"])
def test_panel_says_what_it_shows(panel: dict[str, Any]) -> None:
    """A description, a unit, a name for each line, and the data source that was chosen."""
    assert len(panel["description"].split()) >= 4
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["datasource"] == SOURCE
    assert panel["targets"]
    references = [target["refId"] for target in panel["targets"]]
    assert len(set(references)) == len(references)
    for target in panel["targets"]:
        assert target["datasource"] == SOURCE
        assert target["legendFormat"]


@pytest.mark.parametrize("panel", SHOWN, ids=lambda panel: panel["title"])
def test_panel_heeds_the_choices(panel: dict[str, Any]) -> None:
    """Every metric that it asks for is of the chosen job and trainers, and if it tells of models,
    of the chosen ones; alerts are shown whoever was chosen."""
    for target in panel["targets"]:
        for name, selector in re.findall(
            r"\b(up|ALERTS|(?:lilo|process)[_:][\w:]+)\b(?:\{([^}]*)\})?", target["expr"]
        ):
            if name == "ALERTS":
                continue
            assert 'job=~"$job", instance=~"$instance"' in selector, target["expr"]
            if name.startswith("lilo_model_"):
                assert 'model=~"$model"' in selector


def test_variables_are_declared() -> None:
    """Each one that is used can be chosen, and each that can be chosen is used."""
    declared = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]+)\}?", json.dumps(DASHBOARD)))
    assert used == declared == {"datasource", "job", "instance", "model"}


def test_provisioning_fits_the_page() -> None:
    """The folder that Grafana is told to look into is the one that the page copies the file to,
    and the page copies every file there is."""
    page = (FOLDER / "README.md").read_text()
    provider = (FOLDER / "provisioning" / "dashboards" / "lilo.yml").read_text()
    folder = re.search(r"path: (\S+)", provider)
    assert folder is not None
    assert f"dashboard.json {folder[1]}/" in page
    for file in FOLDER.rglob("*.yml"):
        assert str(file.relative_to(FOLDER)) in page
