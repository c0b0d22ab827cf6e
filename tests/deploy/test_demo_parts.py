"""The demonstration's parts that need no process."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from lilo_local.demo.processes import Inbox, Line, StoppedError
from lilo_local.demo.progress import Progress
from lilo_local.demo.table import Section, closing_table, duration
from lilo_local.demo.totals import Phases, added, phases_of

COLUMNS = 80
"""Of an ordinary terminal."""


def figures(count: int, total: float, longest: float, batch: float = 1.0) -> dict[str, float]:
    return {
        "count": count,
        "total_s": total,
        "mean_s": total / count,
        "max_s": longest,
        "mean_batch": batch,
    }


def report(phases: Phases) -> dict[str, float]:
    flat = {f"lilo/{p}.{s}": value for p, stats in phases.items() for s, value in stats.items()}
    return {**flat, "lilo/trainer.backend_ready_s": 4.0, "lilo/delivery.applied": 9}


def test_reports_are_added_up() -> None:
    """Counts and seconds add, the maximum is the larger one, means follow; what only one report
    has is kept; gauges and delivery counts are no phases."""
    first = {"forward.execute": figures(3, 0.6, 0.4, 2.0), "accept.execute": figures(1, 0.1, 0.1)}
    second = {"forward.execute": figures(1, 0.2, 0.2, 1.0), "forward.queue_wait": figures(1, 1, 1)}
    together = added(phases_of(report(first)), phases_of(report(second)))
    assert together.keys() == {"forward.execute", "accept.execute", "forward.queue_wait"}
    assert together["forward.execute"] == pytest.approx(figures(4, 0.8, 0.4, 1.75))
    assert together["accept.execute"] == first["accept.execute"]
    assert together["forward.queue_wait"] == second["forward.queue_wait"]
    assert added({}, first) == first


def printed(table_or_text: object) -> list[str]:
    text = io.StringIO()
    Console(file=text, width=COLUMNS).print(table_or_text)
    return text.getvalue().splitlines()


def test_the_table_fits_a_terminal_and_cuts_nothing() -> None:
    """A row for each phase, in the order things happen, with the longest names and numbers there
    are, on 80 columns."""
    phases = {
        "save_weights_for_sampler.persist": figures(1000, 12_345.0, 123.4),
        "save_weights_for_sampler.capture": figures(1, 0.0123, 0.0123),
        "forward_backward.execute": figures(10, 5.0, 0.9999, 1.25),
        "forward_backward.queue_wait": figures(10, 0.001, 0.0002),
        "accept.execute": figures(1, 0.5, 0.5),
    }
    lines = printed(closing_table([Section("heavy", phases), Section("light", {})]))
    assert max(len(line) for line in lines) <= COLUMNS
    rows = [line.split() for line in lines if " ms " in line or " s " in line]
    assert rows == [
        ["accept", "ran", "1", "500.0", "ms", "500.0", "ms", "1.00"],
        ["forward_backward", "waited", "10", "0.1", "ms", "0.2", "ms"],
        ["ran", "10", "500.0", "ms", "999.9", "ms", "1.25"],
        ["save_weights_for_sampler", "captured", "1", "12.3", "ms", "12.3", "ms"],
        ["written", "1000", "12.35", "s", "123.40", "s"],
    ]
    assert "\u2026" not in "".join(lines)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "0.0 ms"), (0.00004, "0.0 ms"), (0.25, "250.0 ms"), (1.0, "1.00 s")]
)
def test_durations_have_a_fitting_unit(seconds: float, text: str) -> None:
    """Milliseconds below a second."""
    assert duration(seconds) == text


def test_a_tenant_reports_each_step_and_is_shown_now_and_then() -> None:
    """A hundred reports within moments make one line; all of them are in the sums."""
    text = io.StringIO()
    progress = Progress(Console(file=text, width=COLUMNS), ["heavy"])
    step = {
        "forward_backward.queue_wait": figures(1, 0.1, 0.1),
        "forward_backward.execute": figures(1, 0.2, 0.2, 2.0),
    }
    progress.tell("heavy", {"event": "tenant_started", "model_id": "m"})
    progress.tell("control-plane", {"event": "lilo_critical_path", "metrics": report(step)})
    for number in range(1, 101):
        progress.tell("heavy", {"event": "tenant_step", "step": number, "loss": 5.0 / number})
        progress.tell("heavy", {"event": "lilo_critical_path", "metrics": report(step)})
    (line,) = text.getvalue().splitlines()
    assert line.endswith("step   1  loss 5.00  waited 100.0 ms, ran 200.0 ms, batch 2.0")
    (section,) = progress.sections()
    assert section.phases["forward_backward.execute"] == pytest.approx(figures(100, 20, 0.2, 2.0))
    assert progress.to_json()["heavy"]["reports"] == 100


def test_the_wish_to_stop_comes_through_the_inbox() -> None:
    """After the lines that were there before it; nothing at all is a timeout."""
    inbox = Inbox()
    inbox.put(Line("a", {}))
    inbox.stop()
    assert inbox.get(1) == Line("a", {})
    with pytest.raises(StoppedError):
        inbox.get(1)
    with pytest.raises(TimeoutError):
        inbox.get(0)
