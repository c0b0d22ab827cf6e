"""The names of the metrics."""

from __future__ import annotations

from lilo_timing._answer import Interval, TimingAnswer
from lilo_timing._metrics import flatten

_STATS = {"count": 2, "total_s": 3.0, "mean_s": 1.5, "max_s": 2.0, "mean_batch": 1.5}


def test_every_figure_has_its_name_under_the_prefix() -> None:
    """One flat dictionary: phases, gauges, delivery, waits, shares, the step and its fractions,
    and sections that this version does not know."""
    answer = TimingAnswer(
        phases={"forward_backward.queue_wait": _STATS},
        waits={"forward_backward": {"self_s": 1.0, "neighbors_s": 2.0}},
        shares={"forward_backward": 0.5},
        step={"wall_s": 4.0, "mine_s": 3.0, "client_s": 1.0, "since": 100.0, "until": 104.0},
        gauges={"trainer.backend_ready_s": 1.5},
        delivery={"applied": 3},
        interval=Interval("a.1", "a.2", complete=True),
        journal=False,
        others={"cache": {"hits": 7}},
    )
    assert flatten(answer, "x") == {
        "x/forward_backward.queue_wait.count": 2,
        "x/forward_backward.queue_wait.total_s": 3.0,
        "x/forward_backward.queue_wait.mean_s": 1.5,
        "x/forward_backward.queue_wait.max_s": 2.0,
        "x/forward_backward.queue_wait.mean_batch": 1.5,
        "x/forward_backward.queue_wait.self_s": 1.0,
        "x/forward_backward.queue_wait.neighbors_s": 2.0,
        "x/forward_backward.execute.share_s": 0.5,
        "x/step.wall_s": 4.0,
        "x/step.mine_s": 3.0,
        "x/step.client_s": 1.0,
        "x/step.since": 100.0,
        "x/step.until": 104.0,
        "x/step.mine_fraction": 0.75,
        "x/step.client_fraction": 0.25,
        "x/trainer.backend_ready_s": 1.5,
        "x/interval.complete": 1,
        "x/delivery.applied": 3,
        "x/journal.writing": 0,
        "x/cache.hits": 7,
    }


def test_a_step_without_length_has_no_fractions() -> None:
    """Nothing is divided by zero, and no fraction is made up."""
    step = {"wall_s": 0.0, "mine_s": 0.0}
    assert flatten(TimingAnswer({}, step=step), "x") == {"x/step.wall_s": 0.0, "x/step.mine_s": 0.0}
