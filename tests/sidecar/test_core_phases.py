"""What each phase means."""

from __future__ import annotations

import pytest

from lilo_engine_hook import wire
from lilo_sidecar.core.critical_path import CriticalPath
from support.feed import Feed, begin, finish, hello, span


@pytest.fixture
def feed() -> Feed:
    return Feed(CriticalPath(), hello(started=100.0))


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("forward_backward", "forward_backward.execute"),
        ("accept", "accept.execute"),
        ("capture:save_weights", "save_weights.capture"),
        ("persist:save_weights_for_sampler", "save_weights_for_sampler.persist"),
        ("captured", "captured.execute"),
    ],
)
def test_span_names_become_phases(feed: Feed, name: str, phase: str) -> None:
    """A span's name says its phase: execution, capture or persistence of a kind."""
    feed(span(["m"], 1.0, 3.5, name))
    figures = feed.timing("m").phases[phase]
    assert (figures.count, figures.total_s, figures.mean_s, figures.max_s) == (1, 2.5, 2.5, 2.5)
    assert list(feed.timing("m").phases) == [phase]


def test_short_operation_behind_a_long_one_shows_its_wait_apart(feed: Feed) -> None:
    """A 1 s command that waited 30 s behind a neighbour: 30 waiting and 1 executing, never 31."""
    feed(
        begin("long", 0, 10.0),
        begin("short", 0, 10.0),
        span(["long"], 10.0, 40.0, ids=["long:0"]),
        span(["short"], 40.0, 41.0, ids=["short:0"]),
    )
    phases = feed.timing("short").phases
    assert phases["forward_backward.queue_wait"].total_s == 30.0
    assert phases["forward_backward.execute"].total_s == 1.0
    assert phases["forward_backward.execute"].max_s == 1.0


def test_evaluation_is_a_phase_of_its_own(feed: Feed) -> None:
    """A minute of forward-only evaluation leaves the training mean at a second."""
    feed(span(["m"], 0.0, 1.0), span(["m"], 1.0, 61.0, "forward"))
    phases = feed.timing("m").phases
    assert phases["forward_backward.execute"].mean_s == 1.0
    assert phases["forward.execute"].total_s == 60.0


def test_wait_is_recorded_by_a_commands_first_span_only(feed: Feed) -> None:
    """The capture of a command ends its wait; the persist that follows adds none."""
    feed(
        begin("m", 7, 1.0, "save_weights"),
        span(["m"], 3.0, 4.0, "capture:save_weights", ids=["m:7"]),
        span(["m"], 5.0, 9.0, "persist:save_weights", ids=["m:7"], lane="checkpoint"),
    )
    wait = feed.timing("m").phases["save_weights.queue_wait"]
    assert (wait.count, wait.total_s) == (1, 2.0)


def test_batch_is_credited_whole_to_each_model_and_once_to_all(feed: Feed) -> None:
    """A coalesced execution: its wall time for every model in it, one record in the aggregate,
    and the waits of each command for its own model."""
    feed(
        begin("a", 0, 0.0),
        begin("a", 1, 1.0),
        begin("b", 0, 2.0),
        span(["a", "b", "a"], 4.0, 6.0, ids=["a:0", "a:1", "b:0"], n=3),
    )
    for model, waits in (("a", (2, 7.0)), ("b", (1, 2.0)), (None, (3, 9.0))):
        phases = feed.timing(model).phases
        execute = phases["forward_backward.execute"]
        assert (execute.count, execute.total_s, execute.mean_batch) == (1, 2.0, 3.0)
        wait = phases["forward_backward.queue_wait"]
        assert (wait.count, wait.total_s) == waits


def test_failed_execution_is_recorded(feed: Feed) -> None:
    """A batch that failed took its time all the same."""
    feed(begin("m", 0, 0.0), span(["m"], 1.0, 3.0, ids=["m:0"], ok=False))
    assert feed.timing("m").phases["forward_backward.execute"].total_s == 2.0
    assert feed.timing("m").phases["forward_backward.queue_wait"].total_s == 1.0


def test_mean_batch_counts_commands(feed: Feed) -> None:
    """`n` says how many commands; without it their ids do; without those, the models."""
    feed(
        span(["a"], 0, 1, n=4),
        span(["a"], 0, 1, ids=["a:0", "a:1"]),
        span(["a", "b", "c"], 0, 1),
    )
    assert feed.timing("a").phases["forward_backward.execute"].mean_batch == 3.0


def test_sequence_ids_count_for_a_single_model_only(feed: Feed) -> None:
    """Without request ids, sequence numbers name commands where there is just one model."""
    feed(begin("a", 0, 0.0), span(["a"], 2.0, 3.0, seqs=[0]))
    assert feed.timing("a").phases["forward_backward.queue_wait"].total_s == 2.0
    feed(begin("a", 1, 0.0), begin("b", 1, 0.0), span(["a", "b"], 4.0, 5.0, seqs=[1, 1]))
    assert feed.timing(None).phases["forward_backward.queue_wait"].count == 1


def test_acceptance_waits_from_registration(feed: Feed) -> None:
    """From being asked for until its accept span starts, a model waits, once."""
    feed(wire.Register(110.0, "m"), span(["m"], 113.0, 114.0, "accept"))
    phases = feed.timing("m").phases
    assert phases["accept.queue_wait"].total_s == 3.0
    assert phases["accept.execute"].total_s == 1.0
    feed(span(["m"], 120.0, 121.0, "accept"))
    assert feed.timing("m").phases["accept.queue_wait"].count == 1


def test_gauges_count_from_the_process_start_and_are_set_once(feed: Feed) -> None:
    """Start-up milestones, in seconds since the process really started; the first one stands."""
    feed(
        wire.Gauge(101.0, "backend_ready"),
        wire.Gauge(102.5, "serving_ready"),
        span(["m"], 103.0, 103.5, "accept", ok=False),
        span(["m"], 104.0, 105.0, "accept"),
        span(["n"], 106.0, 107.0, "accept"),
        wire.Gauge(150.0, "backend_ready"),
    )
    assert feed.timing().gauges == {
        "trainer.backend_ready_s": 1.0,
        "trainer.serving_ready_s": 2.5,
        "trainer.first_model_ready_s": 5.0,
    }


def test_negative_durations_are_counted_and_not_recorded(feed: Feed) -> None:
    """A clock set back makes no record below zero, and is visible."""
    feed(
        begin("m", 0, 50.0),
        span(["m"], 10.0, 9.0, ids=["m:0"]),
        wire.Gauge(99.0, "backend_ready"),
    )
    answer = feed.timing("m")
    assert answer.phases == {}
    assert answer.gauges == {}
    assert answer.delivery.negative == 3
    feed(span(["m"], 60.0, 61.0, ids=["m:0"]))
    assert "forward_backward.queue_wait" not in feed.timing("m").phases


def test_repeated_submission_keeps_the_first_time(feed: Feed) -> None:
    """A retried submission does not shorten the wait."""
    feed(begin("m", 0, 1.0), begin("m", 0, 5.0), span(["m"], 6.0, 7.0, ids=["m:0"]))
    assert feed.timing("m").phases["forward_backward.queue_wait"].total_s == 5.0


def test_finished_command_waits_no_more(feed: Feed) -> None:
    """A command that ended without a span (it was cancelled) leaves nothing behind."""
    feed(begin("m", 0, 1.0), finish("m", 0), span(["m"], 6.0, 7.0, ids=["m:0"]))
    assert "forward_backward.queue_wait" not in feed.timing("m").phases


def test_reset_ends_the_interval_of_its_model_alone(feed: Feed) -> None:
    """The answer that resets has the interval; the next begins empty; others are untouched."""
    feed(span(["a"], 0, 1), span(["b"], 0, 2))
    assert feed.timing("a", reset=True).phases["forward_backward.execute"].count == 1
    assert feed.timing("a").phases == {}
    assert feed.timing("b").phases["forward_backward.execute"].total_s == 2.0
    assert feed.timing(None, reset=True).phases["forward_backward.execute"].count == 2
    assert feed.timing(None).phases == {}
    assert feed.timing("b").phases["forward_backward.execute"].count == 1


def test_lifetime_ignores_resets(feed: Feed) -> None:
    """The totals since the trainer started stay whole, whoever resets and however often."""
    for second in range(3):
        feed(span(["m"], second, second + 0.5))
        feed.timing(None, reset=True)
        feed.timing("m", reset=True)
    feed(span(["m"], 10.0, 12.0))
    lifetime = feed.core.lifetime(now=0.0).phases["forward_backward.execute"]
    assert (lifetime.count, lifetime.total_s, lifetime.max_s) == (4, 3.5, 2.0)


def test_wait_that_spans_a_reset_belongs_to_the_interval_it_ends_in(feed: Feed) -> None:
    """A reset does not lose the submit time of a command that still waits."""
    feed(begin("m", 0, 1.0))
    feed.timing("m", reset=True)
    feed(span(["m"], 9.0, 10.0, ids=["m:0"]))
    assert feed.timing("m").phases["forward_backward.queue_wait"].total_s == 8.0


def test_answer_is_json_with_six_places(feed: Feed) -> None:
    """Times are rounded to the microsecond, phases sorted, counts whole."""
    feed(span(["m"], 0.0, 1.0, "accept"), span(["m"], 1.0, 1.1234567891))
    assert feed.core.timing("m", reset=False, now=102.00000049).to_json() == {
        "model_id": "m",
        "uptime_s": 2.0,
        "phases": {
            "accept.execute": {
                "count": 1,
                "total_s": 1.0,
                "mean_s": 1.0,
                "max_s": 1.0,
                "mean_batch": 1.0,
            },
            "forward_backward.execute": {
                "count": 1,
                "total_s": 0.123457,
                "mean_s": 0.123457,
                "max_s": 0.123457,
                "mean_batch": 1.0,
            },
        },
        "waits": {},
        "shares": {"accept": 1.0, "forward_backward": 0.123457},
        "step": {
            "wall_s": 1.123457,
            "mine_s": 1.123457,
            "shared_batch_s": 0.0,
            "neighbors_s": 0.0,
            "overhead_s": 0.0,
            "persist_s": 0.0,
            "client_s": 0.0,
            "since": 0.0,
            "until": 1.1234567891,
        },
        "lanes": {},
        "gauges": {},
        "interval": {
            "reader": None,
            "from": "0.0",
            "cursor": None,
            "complete": False,
            "final": False,
        },
        "delivery": {
            "sent": 2,
            "applied": 2,
            "dropped": 0,
            "rejected": 0,
            "unweighed": 0,
            "missed": 0,
            "negative": 1,
            "series_refused": 0,
            "pending_evicted": 0,
        },
    }
