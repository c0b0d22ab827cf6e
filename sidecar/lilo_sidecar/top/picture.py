"""What `top` shows: an overview as lines of text that fit the terminal. Pure."""

from __future__ import annotations

import textwrap

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from ..shown import shown
from ..words import duration
from .bars import cells_of
from .glyphs import LETTERS, NAMES, STYLES, Glyphs
from .overview import WINDOW, Lane, Model, Overview
from .timeline import timeline

_MODEL = 18
"""Columns of a model's id."""
_LANE = 11
"""Columns of a lane's name."""
_ACTIVITY = 23
"""Columns of what a lane does now, and for how long: ``forward_backward 1.2 s`` and the like."""
_MAX_LANES = 4
"""Lanes shown; an engine has three."""
_WIDE = 120
"""Columns from which on each of the six parts has its percentage."""
_TROUBLE = 3
"""Lines of it at most."""


def picture(
    overview: Overview, url: str, size: tuple[int, int], glyphs: Glyphs, trouble: str | None = None
) -> Text:
    """``size`` is columns and lines; ``trouble`` is told in the place of the sidecar's state."""
    width, height = size
    letters = {m.model_id: c for m, c in zip(overview.models, LETTERS, strict=False)}
    lines = [_title(overview, url, width, glyphs)]
    if trouble is None:
        lines += _state(overview, glyphs)
    else:
        wrapped = textwrap.wrap(shown(trouble, _TROUBLE * width), max(1, width))
        lines += [Text(line, "bold red") for line in wrapped[:_TROUBLE]]
    lines += [Text(), *_lanes(overview, width, letters, glyphs), Text()]
    legend = _legend(glyphs)
    lines += _models(overview, width, height - len(lines) - 2, glyphs)
    lines += [Text(), legend]
    for line in lines:
        line.truncate(width)
    return Text("\n").join(lines[:height])


def _title(overview: Overview, url: str, width: int, glyphs: Glyphs) -> Text:
    title = Text(f"lilo-sidecar {shown(overview.version, 20)}", "bold")
    title.append(f" {glyphs.dot} {url} {glyphs.dot} up {duration(overview.uptime_s)}", "not bold")
    return title


def _state(overview: Overview, glyphs: Glyphs) -> list[Text]:
    """Whether what is shown can be relied upon."""
    trainer = Text()
    if overview.connected:
        trainer.append("trainer connected")
    elif overview.last_heard_age_s is None:
        trainer.append("no trainer has connected yet", "bold yellow")
    else:
        trainer.append("the trainer is gone", "bold yellow")
    if overview.last_heard_age_s is not None:
        trainer.append(f", heard {duration(overview.last_heard_age_s)} ago")
    if overview.journal_reason is None:
        trainer.append(f" {glyphs.dot} journal written")
    else:
        trainer.append(f" {glyphs.dot} ")
        trainer.append(f"journal OFF: {shown(overview.journal_reason)}", "bold red")
    return [trainer, _delivery(overview)]


def _delivery(overview: Overview) -> Text:
    delivery = overview.delivery
    line = Text(f"events: {delivery.sent:,} sent, {delivery.applied:,} applied")
    wrong = {name: n for name, n in delivery._asdict().items() if name not in ("sent", "applied")}
    wrong["faults"] = overview.faults
    found = [f"{n:,} {name.replace('_', ' ')}" for name, n in wrong.items() if n]
    if found:
        line.append(f", {', '.join(found)}", "bold red")
        line.append("; lilo-sidecar check says more")
    else:
        line.append(", none lost")
    return line


def _lanes(overview: Overview, width: int, letters: dict[str, str], glyphs: Glyphs) -> list[Text]:
    cells = max(8, width - _LANE - _ACTIVITY - 8)
    span = f"last {WINDOW / 60:.0f} min"
    head = f"{'lane':{_LANE}} {'now':{_ACTIVITY}} {span:<{cells}}  busy"
    lines = [Text(head, "dim")]
    for lane in overview.lanes[:_MAX_LANES]:
        lines.append(_lane(lane, overview.now, cells, letters, glyphs))
    if not overview.lanes:
        lines.append(Text("No lane has worked in the last minutes."))
    if len(overview.lanes) > _MAX_LANES:
        lines.append(Text(f"{glyphs.ellipsis} and {len(overview.lanes) - _MAX_LANES} more lanes"))
    return lines


def _lane(lane: Lane, now: float, cells: int, letters: dict[str, str], glyphs: Glyphs) -> Text:
    doing = "idle" if lane.operation is None else shown(lane.operation)
    age = "" if lane.operation is None else f" {duration(lane.for_s)}"
    line = Text(f"{_fit(shown(lane.name), _LANE, glyphs)} ")
    line.append(f"{_fit(doing, _ACTIVITY - len(age), glyphs)}{age} ", "" if age else "dim")
    for character, model in timeline(lane, now, cells, letters, glyphs):
        style = "dim" if model is None else _colour_of(letters.get(model))
        line.append(character, style)
    busy = lane.busy(max(lane.known_from, now - WINDOW), now)
    line.append(f" {busy:5.0%}")
    return line


def _colour_of(letter: str | None) -> str:
    """Neighbors in the table have different ones; the letter tells those of one colour apart."""
    return "" if letter is None else STYLES[LETTERS.index(letter) % 5]


def _models(overview: Overview, width: int, room: int, glyphs: Glyphs) -> list[Text]:
    """As many as there is room for; one line at least."""
    if not overview.models:
        missing = (
            "The trainer has no models yet."
            if overview.connected
            else "Nothing to show: no trainer reports. `lilo-sidecar check` says what to do."
        )
        return [Text(missing)]
    names = NAMES if width >= _WIDE else NAMES[:1]
    columns = "".join(f" {_heading(name)}" for name in names)
    bar = max(4, width - 2 - _MODEL - 1 - 7 - len(columns) - 18)
    head = f"  {'model':{_MODEL}} {'its last interval':<{bar}.{bar}} {'of':>6}{columns}"
    lines = [Text(f"{head}  batch queued run", "dim")]
    shown_models = overview.models[: max(0, room - 1)]
    if len(shown_models) < len(overview.models) or overview.models_left_out:
        shown_models = overview.models[: max(0, room - 2)]
    for at, model in enumerate(shown_models):
        letter = LETTERS[at] if at < len(LETTERS) else ""
        lines.append(_model(model, letter, bar, names, overview.now, glyphs))
    more = len(overview.models) - len(shown_models) + overview.models_left_out
    if more:
        lines.append(Text(f"  {glyphs.ellipsis} and {more:,} more", "dim"))
    return lines


def _model(
    model: Model, letter: str, bar: int, names: tuple[str, ...], now: float, glyphs: Glyphs
) -> Text:
    line = Text(f"{letter:1} ", _colour_of(letter or None))
    active = model.queued or model.running or now - model.until < WINDOW
    line.append(f"{_fit(shown(model.model_id), _MODEL, glyphs)} ", "" if active else "dim")
    for cells, character, style in zip(
        cells_of(model.parts, bar), glyphs.parts, STYLES, strict=True
    ):
        line.append(character * cells, style)
    if not model.parts.total:
        line.append(" " * bar)
    line.append(f" {duration(model.parts.total):>6}")
    for name, part in zip(names, model.parts, strict=False):
        share = part / model.parts.total if model.parts.total else 0.0
        line.append(f" {share:{len(_heading(name))}.0%}")
    factor = "" if model.batch_factor is None else f"{model.batch_factor:.2f}"
    line.append(f" {factor:>6} {model.queued:>6} {model.running:>3}")
    return line


def _heading(name: str) -> str:
    return f"{name.split()[0]:>5}"


def _legend(glyphs: Glyphs) -> Text:
    legend = Text()
    for name, character, style in zip(NAMES, glyphs.parts, STYLES, strict=True):
        legend.append(character, style)
        legend.append(f" {name}   ")
    legend.rstrip()
    return legend


def _fit(text: str, width: int, glyphs: Glyphs) -> str:
    """In exactly so many columns, whatever width its characters have."""
    if cell_len(text) > width:
        text = set_cell_size(text, width - 1).rstrip() + glyphs.ellipsis
    return set_cell_size(text, width)
