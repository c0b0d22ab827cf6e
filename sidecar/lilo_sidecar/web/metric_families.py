"""What `/metrics` tells: the metrics of one moment, for the Prometheus client library to write.

Base units; counters count since there is this sidecar's state, or, of the sidecar's own faults and
connections, since it started. Nothing that a reader does moves them. A gauge that nobody knows yet
has no sample.

Kinds, lanes and model ids are what the trainer calls them, and any text; the library escapes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)

from ..core.account import StepSums
from ..core.timing import Health, shares_of, waits_of
from ..core.totals import ModelTotals, Totals
from ..intake.ingest import IngestStatistics
from ..state.recorder import JournalStatus
from .server import HttpStatistics

MAX_NAMED_MODELS: Final = 256
"""Models with series of their own, those that were active last. Each has eleven; how many a
Prometheus server is to hold is not for a trainer's clients to decide."""
_MILESTONE: Final = "trainer."


class Moment(NamedTuple):
    """What is known at one moment."""

    totals: Totals
    health: Health
    journal: JournalStatus
    ingest: IngestStatistics
    http: HttpStatistics | None
    version: str


def families(moment: Moment, lanes: Sequence[str]) -> Iterator[Metric]:
    """All metrics of the moment. ``lanes`` are all there are, idle or not."""
    yield from _phases(moment.totals)
    yield from _steps(moment.totals)
    yield from _models(moment.totals.models)
    yield from _delivery(moment.totals)
    yield from _lanes(moment.health, lanes)
    yield from _trainer(moment.health)
    yield from _sidecar(moment)


def _counter(
    name: str, text: str, label: str, values: Iterable[tuple[str, float]], unit: str = ""
) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label], unit=unit)
    for value, count in values:
        family.add_metric([value], count)
    return family


def _gauge(name: str, text: str, value: float, unit: str = "") -> Metric:
    return GaugeMetricFamily(name, text, value, unit=unit)


def _phases(totals: Totals) -> Iterator[Metric]:
    phases = totals.phases
    yield _counter(
        "lilo_phase_records",
        "Records of a phase, of all models: batches that ran, waits that ended.",
        *("phase", ((name, series.count) for name, series in phases.items())),
    )
    yield _counter(
        "lilo_phase_seconds",
        "Time of a phase, of all models; of a batch once, however many models are in it.",
        *("phase", ((name, series.total) for name, series in phases.items()), "seconds"),
    )
    yield _counter(
        "lilo_phase_commands",
        "Commands in a phase's records: by records it is how many shared a batch.",
        *("phase", ((name, series.batch) for name, series in phases.items())),
    )
    yield _counter(
        "lilo_gpu_lane_seconds",
        "Time that the gpu lane worked, by the kind of command that it ran.",
        *("kind", shares_of(phases).items(), "seconds"),
    )
    waits = CounterMetricFamily(
        "lilo_queue_wait_seconds",
        "Time that commands waited for a lane, by what it did meanwhile: their own model's work "
        "(self), others' (neighbors), nothing (overhead), or too long ago to tell (unattributed).",
        labels=["kind", "part"],
        unit="seconds",
    )
    for kind, wait in waits_of(phases).items():
        for part, seconds in wait._asdict().items():
            waits.add_metric([kind, part.removesuffix("_s")], seconds)
    yield waits


def _steps(totals: Totals) -> Iterator[Metric]:
    yield _counter(
        "lilo_step_seconds",
        "Time of all models, those that are gone included, by where it went. The parts are "
        "explained at lilo_model_step_seconds.",
        *("part", _parts(totals.steps), "seconds"),
    )


def _parts(sums: StepSums) -> Iterator[tuple[str, float]]:
    return zip(sums.__slots__, sums.to_tuple(), strict=True)


def _models(models: Sequence[ModelTotals]) -> Iterator[Metric]:
    named = sorted(models, key=lambda model: model.until, reverse=True)[:MAX_NAMED_MODELS]
    yield _gauge("lilo_models", "Models that the trainer has.", len(models))
    yield _gauge(
        "lilo_models_left_out",
        f"Models without series of their own: {MAX_NAMED_MODELS} have them, those that were "
        "active last.",
        len(models) - len(named),
    )
    yield _gauge(
        "lilo_queued_commands",
        "Commands that no lane has taken up, of all models.",
        sum(model.queued for model in models),
    )
    yield _gauge(
        "lilo_running_commands",
        "Commands that a lane has taken up and that are not finished, of all models.",
        sum(model.running for model in models),
    )
    steps = CounterMetricFamily(
        "lilo_model_step_seconds",
        "A model's time by where it went; the parts add up to the clock. mine: its share of "
        "batches it was in. shared_batch: the rest of those. neighbors: it waited, and the lane "
        "ran others. overhead: it waited, and the lane was idle. persist: something of it was "
        "written. client: nothing of it was in the trainer.",
        labels=["model", "part"],
        unit="seconds",
    )
    executions = CounterMetricFamily(
        "lilo_model_executions", "Batches that ran with the model in them.", labels=["model"]
    )
    commands = CounterMetricFamily(
        "lilo_model_batched_commands",
        "Commands in these batches, of all models.",
        labels=["model"],
    )
    queued = GaugeMetricFamily(
        "lilo_model_queued_commands",
        "Commands of the model that no lane has taken up.",
        labels=["model"],
    )
    running = GaugeMetricFamily(
        "lilo_model_running_commands",
        "Commands of the model that a lane has taken up and that are not finished.",
        labels=["model"],
    )
    for model in named:
        labels = [model.model_id]
        for part, seconds in _parts(model.sums):
            steps.add_metric([model.model_id, part], seconds)
        executions.add_metric(labels, model.executions)
        commands.add_metric(labels, model.commands)
        queued.add_metric(labels, model.queued)
        running.add_metric(labels, model.running)
    yield from (steps, executions, commands, queued, running)


def _delivery(totals: Totals) -> Iterator[Metric]:
    counts = totals.delivery
    yield CounterMetricFamily(
        "lilo_events_sent",
        "Observer calls that were to become an event; each comes to one outcome.",
        counts.sent,
    )
    outcomes = ("applied", "dropped", "rejected")
    yield _counter(
        "lilo_events",
        "Observer calls by what became of them: applied (in the figures), dropped (at a bound), "
        "rejected (they made no valid event).",
        *("outcome", ((name, getattr(counts, name)) for name in outcomes)),
    )
    yield CounterMetricFamily(
        "lilo_events_missed",
        "Of the dropped events: gaps in the numbering, which never came to this sidecar's state.",
        counts.missed,
    )
    reasons = ("negative", "series_refused", "pending_evicted")
    yield _counter(
        "lilo_records_left_out",
        "What came and is in no series: durations below zero (negative), records without room for "
        "one more series (series_refused), commands forgotten while they waited (pending_evicted).",
        *("reason", ((name, getattr(counts, name)) for name in reasons)),
    )
    yield CounterMetricFamily(
        "lilo_commands_unweighed",
        "Commands whose weight could not be told; they weigh one within their batch.",
        counts.unweighed,
    )


def _lanes(health: Health, lanes: Sequence[str]) -> Iterator[Metric]:
    busy = GaugeMetricFamily("lilo_lane_busy", "Whether the lane works now.", labels=["lane"])
    operation = GaugeMetricFamily(
        "lilo_lane_operation_seconds",
        "For how long the lane has been in the operation that it is in; 0 while it is idle.",
        labels=["lane"],
        unit="seconds",
    )
    for name in lanes:
        now = health.lanes.get(name)
        busy.add_metric([name], now is not None)
        operation.add_metric([name], 0.0 if now is None else now.for_s)
    yield from (busy, operation)


def _trainer(health: Health) -> Iterator[Metric]:
    yield _gauge("lilo_trainer_connected", "Whether a trainer is connected.", health.connected)
    yield _gauge(
        "lilo_producers", "Processes of trainers and backends connected now.", health.producers
    )
    if health.last_heard is not None:
        yield _gauge(
            "lilo_trainer_last_heard_timestamp_seconds",
            "When a trainer or a backend was last heard.",
            *(health.last_heard, "seconds"),
        )
    if health.started is not None:
        yield _gauge(
            "lilo_trainer_start_time_seconds",
            "When the process of the newest trainer started.",
            *(health.started, "seconds"),
        )
    milestones = GaugeMetricFamily(
        "lilo_trainer_milestone_seconds",
        "How long after its start the newest trainer came to a milestone.",
        labels=["milestone"],
        unit="seconds",
    )
    for name, seconds in health.gauges.items():
        milestones.add_metric([name.removeprefix(_MILESTONE).removesuffix("_s")], seconds)
    yield milestones


def _sidecar(moment: Moment) -> Iterator[Metric]:
    ingest, http = moment.ingest, moment.http
    yield InfoMetricFamily("lilo_sidecar", "The sidecar's release.", {"version": moment.version})
    yield _gauge(
        "lilo_journal_writing",
        "Whether what was counted so far would survive the end of the sidecar.",
        moment.journal.writing,
    )
    faults = {"core": moment.health.faults, "ingest": ingest.faults}
    yield _gauge("lilo_ingest_connections", "Connections of producers.", ingest.connections)
    yield _counter(
        "lilo_ingest_connections_refused",
        "Connections of producers that the sidecar ended: they broke the protocol (protocol), "
        "there was no room for them (room), or their user may not report (peer).",
        "reason",
        [
            ("protocol", ingest.protocol_errors),
            ("room", ingest.refused_connections),
            ("peer", ingest.refused_peers),
        ],
    )
    if http is not None:
        faults["http"] = http.faults
        yield _gauge("lilo_http_connections", "Connections of readers.", http.connections)
        yield _counter(
            "lilo_http_connections_refused",
            "Connections of readers that the sidecar ended: there was no room for them (room), "
            "they made way for another (evicted), they took too long (slow).",
            "reason",
            [("room", http.refused), ("evicted", http.evicted), ("slow", http.timed_out)],
        )
    yield _counter(
        "lilo_faults",
        "Events (core) and connections (ingest, http) lost to a fault of the sidecar's own.",
        *("part", faults.items()),
    )
