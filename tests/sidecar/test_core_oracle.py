"""The core against a plain model of the contract, over random orders of events."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from lilo_engine_hook import wire
from lilo_sidecar.core.critical_path import CriticalPath
from lilo_sidecar.core.cursor import Cursor
from lilo_sidecar.core.timing import Timing
from support.feed import Feed, begin, finish, hello, span

MODELS = ("a", "b", "c")
STARTED = 0.0
"""Of the trainer; now and then a span ends before that, as where a clock was set back."""
_KINDS = ("forward_backward", "optim_step", "save_weights")
_times = st.integers(0, 400).map(lambda quarter: quarter / 4)
_models = st.sampled_from(MODELS)
_seqs = st.integers(0, 3)


@st.composite
def spans(draw: st.DrawFn) -> wire.Span:
    """Work for one or several models, named by request ids, sequence ids, or not at all; now
    and then with an end before its start."""
    models = draw(st.lists(_models, min_size=1, max_size=4))
    start = draw(_times)
    form = draw(st.sampled_from(("ids", "seqs", "neither")))
    chosen = draw(st.lists(_seqs, max_size=3, unique=True))
    return span(
        models,
        start,
        start + draw(st.integers(-2, 40)) / 4,
        draw(st.sampled_from(("{}", "capture:{}", "persist:{}"))).format(
            draw(st.sampled_from(_KINDS))
        )
        if draw(st.integers(0, 5))
        else "accept",
        ids=[f"{m}:{s}" for m in dict.fromkeys(models) for s in chosen] if form == "ids" else None,
        seqs=chosen if form == "seqs" else None,
        n=draw(st.none() | st.integers(0, 5)),
        ok=draw(st.none() | st.booleans()),
    )


_events = st.one_of(
    st.builds(wire.Register, _times, _models),
    st.builds(wire.Forget, _times, _models),
    st.builds(begin, _models, _seqs, _times, st.sampled_from(_KINDS)),
    st.builds(finish, _models, _seqs, _times),
    spans(),
    spans(),
    st.builds(wire.State, _times, st.none(), st.just("idle")),
)


@dataclass(frozen=True)
class Read:
    """A reader (None: one without a name) asks for a model's interval, or that of all (None), and
    acknowledges what it received last."""

    model: str | None
    reader: str | None
    reset: bool
    received: bool
    """Whether the answer reaches the reader."""


_reads = st.builds(
    Read,
    st.none() | _models,
    st.sampled_from((None, "loop", "other")),
    st.sampled_from((True, True, False)),
    st.booleans(),
)


class Place(NamedTuple):
    """A point in what was recorded."""

    records: int
    negative: int


@dataclass
class Standing:
    """Where a reader stands."""

    start: Place
    end: Place | None = None
    cursor: str | None = None
    """Of the end."""


@dataclass
class Oracle:
    """Keeps every record there was, and sums them when asked."""

    records: list[tuple[tuple[str, ...], str, float, int]] = field(default_factory=list)
    born: dict[str | None, Place] = field(default_factory=lambda: {None: Place(0, 0)})
    died: dict[str, Place] = field(default_factory=dict)
    standings: dict[tuple[str | None, str | None], Standing] = field(default_factory=dict)
    received: dict[tuple[str | None, str | None], str] = field(default_factory=dict)
    """The cursors that readers hold; they do not know of a model's end."""
    waiting: dict[str, tuple[str, str, float]] = field(default_factory=dict)
    started: set[str] = field(default_factory=set)
    captured: set[str] = field(default_factory=set)
    registered: dict[str, float] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    negative: int = 0
    gauges: dict[str, float] = field(default_factory=dict)

    def record(self, models: tuple[str, ...], phase: str, seconds: float, batch: int) -> None:
        if seconds < 0:
            self.negative += 1
        else:
            alive = tuple(m for m in models if m not in self.gone)
            for model in alive:
                self.heard_of(model)
            self.records.append((alive, phase, seconds, batch))

    @property
    def here(self) -> Place:
        return Place(len(self.records), self.negative)

    def heard_of(self, model: str, *, registered: bool = False) -> None:
        negative = self.negative if registered else 0
        self.born.setdefault(model, Place(len(self.records), negative))

    def apply(self, event: wire.Event) -> None:
        match event:
            case wire.Register(t, model):
                if model in self.gone:
                    self.gone.discard(model)
                    self.born.pop(model, None)
                    self.died.pop(model, None)
                    for key in [key for key in self.standings if key[0] == model]:
                        del self.standings[key]
                self.heard_of(model, registered=True)
                self.registered.setdefault(model, t)
            case wire.Forget(_, model):
                self.gone.add(model)
                self.registered.pop(model, None)
                self.waiting = {k: v for k, v in self.waiting.items() if v[0] != model}
                self.died.setdefault(model, self.here)
            case wire.Begin(t, model, request_id, _, kind, _):
                if model not in self.gone and request_id not in self.waiting:
                    self.heard_of(model)
                    self.waiting[request_id] = (model, kind, t)
                    self.started.discard(request_id)
                    self.captured.discard(request_id)
            case wire.Finish(_, _, request_id):
                self.finish(request_id)
            case wire.Span():
                self.work(event)

    def finish(self, request_id: str) -> None:
        if request_id not in self.waiting:
            return
        model, _, _ = self.waiting.pop(request_id)
        if request_id not in self.started:
            return
        # Commands of a model run in order: the finishes of those before it were lost.
        for older in self.started & self.waiting.keys() - self.captured:
            if self.waiting[older][0] == model and older < request_id:
                del self.waiting[older]

    def work(self, event: wire.Span) -> None:
        distinct = tuple(dict.fromkeys(event.models))
        ids = event.request_ids
        if ids is None:
            single = len(distinct) == 1 and event.seq_ids is not None
            ids = tuple(f"{distinct[0]}:{seq}" for seq in event.seq_ids or ()) if single else ()
        taken_up: list[str] = []
        for request_id in ids:
            if request_id in self.waiting and request_id not in self.started:
                self.started.add(request_id)
                model, kind, submitted = self.waiting[request_id]
                self.record((model,), f"{kind}.queue_wait", event.t0 - submitted, 1)
                taken_up.append(model)
        if event.name == "accept":
            for model in distinct:
                if model in self.registered:
                    wait = event.t0 - self.registered.pop(model)
                    self.record((model,), "accept.queue_wait", wait, 1)
            if event.ok is not False and event.t1 < STARTED:
                self.negative += 1
            elif event.ok is not False:
                self.gauges.setdefault("trainer.first_model_ready_s", event.t1 - STARTED)
        for model in taken_up:
            self.registered.pop(model, None)  # what runs commands has been accepted
        if event.name.startswith("capture:") and event.t1 >= event.t0:
            self.captured.update(i for i in ids if i in self.waiting and i in self.started)
        prefix, _, kind = event.name.rpartition(":")
        phase = f"{kind}.{prefix or 'execute'}"
        batch = event.n or len(ids) or len(distinct)
        self.record(distinct, phase, event.t1 - event.t0, batch)

    def read(self, core: CriticalPath, read: Read) -> None:
        """Ask, and check the answer."""
        key = (read.model, read.reader)
        held = self.received.get(key) if read.reader is not None else None
        answer = core.timing(
            read.model,
            reset=read.reset,
            now=0.0,
            reader=read.reader,
            ack=None if held is None else Cursor.parse(held),
        )
        born = self.born.get(read.model)
        if born is None:
            assert (answer.phases, answer.step, answer.interval.cursor) == ({}, None, None)
            return
        standing = self.standings.setdefault(key, Standing(born))
        if standing.end is not None and standing.cursor == held:
            standing.start, standing.end = standing.end, None
        self.check(answer, read.model, standing.start)
        assert answer.interval.final == (read.model in self.gone)
        if read.reset:
            end = self.died.get(read.model or "", self.here)
            if read.reader is None:
                standing.start = end
                assert answer.interval.cursor is None
            else:
                standing.end, standing.cursor = end, answer.interval.cursor
                assert standing.cursor is not None
                if read.received:
                    self.received[key] = standing.cursor

    def check(self, answer: Timing, model: str | None, start: Place) -> None:
        """The answer has exactly the sums of the records since the interval began."""
        end = self.died.get(model or "", self.here)
        sums: dict[str, list[tuple[float, int]]] = defaultdict(list)
        for models, phase, seconds, batch in self.records[start.records : end.records]:
            if model is None or model in models:
                sums[phase].append((seconds, batch))
        assert answer.phases.keys() == sums.keys()
        for phase, rows in sums.items():
            figures = answer.phases[phase]
            durations = [row[0] for row in rows]
            # Quarters of a second add up without rounding.
            assert (figures.count, figures.total_s) == (len(rows), sum(durations))
            assert figures.max_s == max(durations)
            assert figures.mean_s == sum(durations) / len(rows)
            assert figures.mean_batch == sum(row[1] for row in rows) / len(rows)
        delivery = answer.delivery
        assert delivery.negative == end.negative - start.negative
        assert delivery.sent == delivery.applied + delivery.dropped + delivery.rejected
        assert delivery.negative == 0 or not answer.interval.complete
        assert answer.gauges == self.gauges


@settings(max_examples=500)
@given(st.lists(_events | _reads, max_size=60), st.data())
def test_core_agrees_with_the_oracle(steps: list[wire.Event | Read], data: st.DataObject) -> None:
    """Any order of events, cut into any batches, read by several readers of whose answers some
    are lost: the same figures."""
    core = CriticalPath()
    feed, oracle = Feed(core, hello(started=STARTED)), Oracle()
    batch: list[wire.Event] = []
    for step in steps:
        if isinstance(step, Read):
            feed(*batch)
            batch.clear()
            oracle.read(core, step)
            continue
        oracle.apply(step)
        batch.append(step)
        if data.draw(st.booleans()):
            feed(*batch)
            batch.clear()
    feed(*batch)
    for model in (None, *MODELS):
        for reader in (None, "loop", "late"):
            oracle.read(core, Read(model, reader, reset=False, received=False))
