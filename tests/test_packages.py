"""What importing the packages loads, and what an installed wheel holds."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import json
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_PACKAGES = ("lilo_engine_hook", "lilo_sidecar", "lilo_timing")


def loaded_by(statement: str) -> set[str]:
    """Top-level modules that a fresh interpreter has after ``statement`` and not before."""
    code = f"""
import json, sys
before = set(sys.modules)
{statement}
print(json.dumps(sorted({{name.partition(".")[0] for name in set(sys.modules) - before}})))
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    return set(json.loads(out.stdout))


def outside(modules: set[str]) -> set[str]:
    """Those that are not of the standard library; compiled modules bring pseudo-modules of
    Cython's along, which are no packages."""
    return {name for name in modules - sys.stdlib_module_names if "cython" not in name}


@pytest.mark.parametrize("module", ["lilo_engine_hook", "lilo_engine_hook.loop"])
def test_hook_loads_msgpack_and_the_standard_library_only(module: str) -> None:
    """In the trainer's process the hook brings nothing else along."""
    assert outside(loaded_by(f"import {module}")) == {"lilo_engine_hook", "msgpack"}


def test_hook_leaves_out_what_only_its_adapters_need() -> None:
    """Whoever has an engine does not pay for the decorators of a hand-written loop."""
    assert "inspect" not in loaded_by("import lilo_engine_hook")


def test_client_loads_no_framework() -> None:
    """In a training loop the client brings neither wandb nor a server's packages, and httpx
    only when it is first used."""
    loaded = outside(loaded_by("import lilo_timing"))
    assert loaded == {"lilo_timing"}


@pytest.mark.parametrize("package", [*_PACKAGES, "lilo_engine_hook.wire"])
def test_public_names_are_listed_once_and_there(package: str) -> None:
    """`__all__` is the public interface (the linter keeps its order)."""
    module = importlib.import_module(package)
    assert len(module.__all__) == len(set(module.__all__))
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


def test_wheel_installs_all_three_packages(tmp_path: Path) -> None:
    """A wheel built from the tree has the three packages, their type markers, the page and the
    command, and nothing of tests or deployments; installed in an empty environment, it works."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names if ".dist-info" not in name} == set(_PACKAGES)
    assert {f"{package}/py.typed" for package in _PACKAGES} <= set(names)
    page = ROOT / "sidecar" / "lilo_sidecar" / "web" / "page"
    assert {name for name in names if "/page/" in name} == {
        f"lilo_sidecar/web/page/{path.relative_to(page).as_posix()}"
        for path in page.rglob("*")
        if path.is_file()
    }

    place = tmp_path / "venv"
    venv.create(place, with_pip=False)
    python = str(place / "bin" / "python")
    target = next((place / "lib").glob("python*/site-packages"))
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target),
         str(wheel)],
        check=True,
        capture_output=True,
    )  # fmt: skip
    # The dependencies come from this environment, whose path goes last.
    here = next(p for p in sys.path if p.endswith("site-packages"))
    code = f"""
import sys; sys.path.append({here!r})
import lilo_engine_hook, lilo_sidecar, lilo_timing
print(lilo_engine_hook.__file__, lilo_sidecar.__file__, lilo_timing.__file__)
"""
    out = subprocess.run([python, "-I", "-c", code], capture_output=True, check=True, text=True)
    assert out.stdout.count(str(target)) == 3, out.stdout


def test_editable_install_has_all_three_packages() -> None:
    """This environment's own install comes from the tree."""
    for package in _PACKAGES:
        module = importlib.import_module(package)
        assert module.__file__ is not None
        assert Path(module.__file__).is_relative_to(ROOT)
    scripts = importlib.metadata.distribution("lilo-timing").entry_points
    assert "lilo-sidecar" in scripts.names


def test_the_core_is_pure() -> None:
    """It imports itself, the events it is told of, and nothing that has a clock, does I/O or
    starts anything."""
    allowed = {"__future__", "array", "bisect", "collections", "dataclasses", "enum", "functools"}
    allowed |= {"heapq", "logging", "math", "msgpack", "operator", "re", "typing"}
    for path in sorted((ROOT / "sidecar" / "lilo_sidecar" / "core").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert {name.name for name in node.names} <= allowed, path.name
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                named = {(node.module, name.name) for name in node.names}
                from_wire = named == {("lilo_engine_hook", "wire")}
                assert from_wire or str(node.module).partition(".")[0] in allowed, path.name
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 1 or node.module == "faults", path.name
