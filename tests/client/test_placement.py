"""Which trainer's clients wait least."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from lilo_timing import least_waiting
from lilo_timing._placement import TIE_S, recent_wait
from support.timing_server import phase, timing


@dataclass(frozen=True)
class Known:
    """What is known of a trainer."""

    wait_s: float | None
    consecutive_failures: int = 0


def waits(count: int, total_s: float, **sections: Any) -> dict[str, Any]:
    """A cumulative answer with that many waits, of two kinds, and an execution that is none."""
    return timing(
        {
            "forward.queue_wait": phase(count // 2, total_s / 2, total_s),
            "optim_step.queue_wait": phase(count - count // 2, total_s / 2, total_s),
            "forward.execute": phase(7, 700.0, 100.0),
        },
        **sections,
    )


def test_the_shortest_recent_wait_wins() -> None:
    """Whatever the order."""
    trainers = {"a": Known(3.0), "b": Known(1.0), "c": Known(2.0)}
    assert least_waiting(trainers) == "b"


def test_a_trainer_that_cannot_be_asked_comes_last() -> None:
    """First those whose last poll succeeded, then those that answered once, then those that
    never did; each of them is better than none."""
    never, lost, fine = Known(None, 5), Known(0.0, 1), Known(9.0)
    assert least_waiting({"never": never, "lost": lost, "fine": fine}) == "fine"
    assert least_waiting({"never": never, "lost": lost}) == "lost"
    assert least_waiting({"never": never}) == "never"


def test_a_trainer_not_asked_yet_waits_for_its_first_answer() -> None:
    """Nothing is assumed of it."""
    assert least_waiting({"new": Known(None), "fine": Known(9.0)}) == "fine"


def test_a_tie_goes_to_the_trainer_with_fewer_models() -> None:
    """Waits that differ by less than noise are the same; then models placed decide, and then
    the order. A real difference is none of that."""
    trainers = {"a": Known(1.0), "b": Known(1.0 + TIE_S / 2), "c": Known(1.0 + TIE_S * 2)}
    assert least_waiting(trainers) == "a"
    assert least_waiting(trainers, {"a": 1}) == "b"
    assert least_waiting(trainers, {"a": 1, "b": 1}) == "a"
    assert least_waiting(trainers, {"a": 1, "b": 2}) == "a"


def test_models_on_fresh_trainers_spread() -> None:
    """Ten models placed before anybody waits are on all trainers alike."""
    trainers = {name: Known(0.0) for name in "abc"}
    placed = dict.fromkeys(trainers, 0)
    for _ in range(9):
        placed[least_waiting(trainers, placed)] += 1
    assert placed == {"a": 3, "b": 3, "c": 3}


def test_without_trainers_there_is_no_place() -> None:
    """An error that says so, not a guess."""
    with pytest.raises(LookupError, match="no trainer"):
        least_waiting({})


def test_the_recent_wait_is_of_what_began_between_two_answers() -> None:
    """The difference of two cumulative answers, over all kinds: what was long ago does not
    count."""
    assert recent_wait(waits(100, 1000.0), waits(104, 1002.0)) == pytest.approx(0.5)


def test_a_first_answer_counts_as_a_whole() -> None:
    """There is nothing to subtract."""
    assert recent_wait(None, waits(4, 2.0)) == pytest.approx(0.5)
    assert recent_wait(None, timing({})) == 0.0


def test_counts_that_fell_are_a_new_beginning() -> None:
    """The trainer restarted, or somebody reset the aggregate: the later answer counts alone."""
    assert recent_wait(waits(100, 1000.0), waits(4, 2.0)) == pytest.approx(0.5)
    assert recent_wait(waits(4, 1000.0), waits(4, 2.0)) == pytest.approx(0.5)


def test_when_nothing_began_the_present_operation_is_the_wait() -> None:
    """A trainer stuck in a long operation takes nothing up, and so records no waits: whoever
    waits there, waits for that. An idle one has nobody waiting."""
    now = waits(4, 2.0, lanes={"gpu": {"operation": "optim_step", "for_s": 30.0}})
    assert recent_wait(waits(4, 2.0), now) == 30.0
    assert recent_wait(waits(4, 2.0), waits(4, 2.0, lanes={})) == 0.0
    assert recent_wait(waits(4, 2.0), waits(4, 2.0)) == 0.0
    assert recent_wait(waits(4, 2.0), waits(4, 2.0, lanes={"gpu": None})) == 0.0
