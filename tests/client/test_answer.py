"""Reading an answer: taken apart, or refused with the place where it is none of ours."""

from __future__ import annotations

import math
from typing import Any

import pytest

from lilo_timing import UnexpectedAnswerError
from lilo_timing._answer import Interval, parse_answer
from support.timing_server import phase, timing


def interval(begin: Any = "0.0", cursor: Any = "0.1", complete: Any = True) -> dict[str, Any]:
    """An answer of this interval."""
    return {"phases": {}, "interval": {"from": begin, "cursor": cursor, "complete": complete}}


def test_every_section_is_taken_apart() -> None:
    """Sections that are known keep their shape; numbers of unknown ones are kept by section."""
    content = timing(
        {"optim_step.queue_wait": phase(2, 3.0, 2.0)},
        waits={"optim_step": {"self_s": 1.0, "neighbors_s": 2.0}},
        shares={"optim_step": 0.5},
        step={"wall_s": 4.0, "mine_s": 4.0},
        cache={"hits": 7, "name": "x", "on": True, "depth": math.nan},
        lanes={"gpu": {"for_s": 1.0}},
        interval={
            "reader": "r",
            "from": "9f.16",
            "cursor": "9f.17",
            "complete": True,
            "final": False,
        },
        journal={"writing": False, "reason": "there is no room"},
    )
    answer = parse_answer(content)
    assert answer.phases == content["phases"]
    assert answer.waits == content["waits"]
    assert answer.shares == {"optim_step": 0.5}
    assert answer.step == {"wall_s": 4.0, "mine_s": 4.0}
    assert answer.gauges == {"trainer.backend_ready_s": 1.5}
    assert answer.delivery == {"applied": 3, "dropped": 0}
    assert answer.others == {"cache": {"hits": 7}}
    assert answer.interval == Interval("9f.16", "9f.17", complete=True)
    assert answer.journal is False


def test_an_older_server_may_leave_sections_out() -> None:
    """Only the phases must be there; a step that is null is none."""
    answer = parse_answer({"phases": {}, "step": None})
    assert (answer.waits, answer.shares, answer.step, answer.gauges) == ({}, {}, None, {})
    assert (answer.interval, answer.journal) == (None, None)


def test_an_interval_that_was_not_ended_has_no_cursor() -> None:
    """Null, where nothing is to be acknowledged."""
    answer = parse_answer(interval(cursor=None, complete=False))
    assert answer.interval == Interval("0.0", None, complete=False)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({}, "no phases"),
        ({"phases": []}, "phases of the answer is not an object"),
        ({"phases": {"a": 1}}, "phases['a'] of the answer is not an object"),
        ({"phases": {"a": {"count": 1}}}, "phases['a'] has no total_s"),
        ({"phases": {}, "waits": {"k": {"self_s": "1"}}}, "no finite number as 'self_s'"),
        ({"phases": {}, "gauges": {"g": math.nan}}, "no finite number as 'g'"),
        ({"phases": {}, "gauges": {"g": math.inf}}, "no finite number as 'g'"),
        ({"phases": {}, "gauges": {"g": 10**400}}, "no finite number as 'g'"),
        ({"phases": {}, "shares": {"g": True}}, "no finite number as 'g'"),
        ({"phases": {}, "delivery": {"g": None}}, "no finite number as 'g'"),
        ({"phases": {}, "step": 1.0}, "step of the answer is not an object"),
        ({"phases": {}, "interval": []}, "interval of the answer"),
        ({"phases": {}, "interval": {}}, "interval of the answer"),
        (interval(complete=1), "interval of the answer"),
        (interval(begin=None), "interval of the answer"),
        (interval(cursor=7), "interval of the answer"),
        (interval(cursor="&reader=x"), "interval of the answer"),
        (interval(cursor="0." + "1" * 63), "interval of the answer"),
        ({"phases": {}, "journal": {"writing": None}}, "journal of the answer"),
    ],
)
def test_what_is_none_of_ours_is_refused_with_its_place(content: Any, said: str) -> None:
    """No figure is guessed from a wrong type, and the message says which one was wrong."""
    with pytest.raises(UnexpectedAnswerError) as caught:
        parse_answer(content)
    assert said in str(caught.value)
