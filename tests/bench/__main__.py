"""``make bench``, or ``python -m bench [--quick] [--only GROUP] [--out FILE] [--publish]``."""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.machine import QUIET, describe
from bench.report import publish, table

GROUPS = ("trainer", "torch_step", "ingest", "answers", "memory", "client", "growth")
"""Modules whose ``figures(quick)`` measures some figures; each gets a process of its own."""
_ROOT = Path(__file__).parents[2]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="seconds, for a first look only")
    parser.add_argument("--only", choices=GROUPS, help="one group of figures, in this process")
    parser.add_argument("--out", type=Path, default=_ROOT / "build" / "bench.json")
    parser.add_argument(
        "--publish", action="store_true", help="write the table and the plots into docs/, too"
    )
    args = parser.parse_args(arguments)
    if args.publish and (args.quick or args.only):
        parser.error("--publish writes a whole table; leave --quick and --only out")
    machine, began = describe(), time.monotonic()
    if args.only:
        group = importlib.import_module(f"bench.{args.only}")
        found = group.figures(args.quick).to_json()
    else:
        found = _all(args.quick)
    result = {
        "machine": machine,
        "quick": args.quick,
        "seconds": round(time.monotonic() - began, 1),
        **found,
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    if not args.only or args.out == parser.get_default("out"):
        Console(width=160).print(table(result))
        if machine["load"][0] > QUIET:
            print(f"The machine was busy (load {machine['load'][0]}) before this began.")
    if args.publish:
        publish(result, _ROOT / "docs")


def _all(quick: bool) -> dict[str, Any]:
    """Every group, one after the other: what one leaves behind is no other's."""
    found: dict[str, Any] = {"figures": [], "curves": []}
    with tempfile.TemporaryDirectory() as directory:
        for name in GROUPS:
            out = Path(directory, f"{name}.json")
            command = [sys.executable, "-m", "bench", "--only", name, "--out", str(out)]
            began = time.monotonic()
            subprocess.run([*command, "--quick"] if quick else command, check=True)
            print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
            part = json.loads(out.read_text())
            for section, items in found.items():
                items += part[section]
    return found


if __name__ == "__main__":
    main()
