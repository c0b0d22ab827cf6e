"""`lilo-sidecar check`: what is wrong with a deployment, and what to do.

`facts` is what is known, `gather` finds it out, `findings` judges it, here it is told.
"""

from __future__ import annotations

import json
from typing import Final

from ..options_asking import AskOptions
from ..shown import shown
from ..words import count
from .facts import Facts
from .finding import Finding
from .findings import findings
from .gather import gather

ALL_WELL: Final = 0
WRONG: Final = 1
NOT_ASKED: Final = 2
_STATUS: Final = {ALL_WELL: "ok", WRONG: "wrong", NOT_ASKED: "not_asked"}
_MAX_LINE: Final = 2000
"""Characters of a line: longer than any of ours."""


def run(options: AskOptions) -> int:
    """Check, and tell on stdout; the exit status. Raises `StartError`."""
    facts = gather(options)
    found = findings(facts)
    status = NOT_ASKED if not facts.answered else WRONG if found else ALL_WELL
    for line in [_document(facts, found, status)] if options.as_json else _lines(facts, found):
        print(line)  # noqa: T201 - a command may
    return status


def _lines(facts: Facts, found: list[Finding]) -> list[str]:
    if not found:
        return [_all_well(facts)]
    return [shown(f"{each.code}: {each.what} {each.why} {each.do}", _MAX_LINE) for each in found]


def _all_well(facts: Facts) -> str:
    applied = facts.figures.delivery.applied if facts.figures is not None else 0
    return (
        f"All is well: lilo-sidecar {facts.version} at {facts.url}, a trainer is connected, "
        f"{count(applied, 'event', 'events')} counted, none lost, and the journal is written."
    )


def _document(facts: Facts, found: list[Finding], status: int) -> str:
    return json.dumps(
        {
            "status": _STATUS[status],
            "url": facts.url,
            "socket": None if facts.socket is None else str(facts.socket.path),
            "version": None if facts.health is None else facts.health.version,
            "findings": [each._asdict() for each in found],
        }
    )
