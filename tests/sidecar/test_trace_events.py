"""Reports as a trace: what is shown where, and what is not."""

from __future__ import annotations

import json
from collections import Counter
from random import Random

import pytest

from lilo_engine_hook import wire
from lilo_sidecar.core.spans import phase_of
from lilo_sidecar.trace.events import NEIGHBOR, Tracer
from lilo_sidecar.trace.reports import Report
from lilo_sidecar.trace.tracks import MAX_ROWS
from support.feed import begin, finish, hello, span
from support.schedule import Schedule, events, random_schedule
from support.traces import Entry, Trace, entries_of, reported


def us(seconds: float) -> int:
    """Microseconds."""
    return round(seconds * 1e6)


def traced(*sent: wire.Event, until: float = 0.0, model: str | None = None) -> Trace:
    """The trace of what one process sent."""
    return Trace(entries_of(reported(*sent), until=until, model=model))


def shown(trace: Trace, track: str) -> list[tuple[str, int, int]]:
    """Names and times on a track, in whole seconds."""
    return [(each.name, each.start // 10**6, each.end // 10**6) for each in trace.on(track)]


def expected(schedule: Schedule, model: str) -> Counter[tuple[str, int, int]]:
    """What a model's track is to show of a schedule."""
    found: Counter[tuple[str, int, int]] = Counter()
    for command in schedule.commands:
        if command.model == model:
            over = command.finished if command.start is None else command.start
            found[f"{command.kind}.queue_wait", us(command.submitted), us(over)] += 1
    for work in schedule.work:
        if model in work.models:
            if work.name == "accept":
                asked = schedule.registered[model]
                found["accept.queue_wait", us(asked), us(work.start)] += 1
            found[phase_of(work.name), us(work.start), us(work.end)] += 1
    for command, start, end in schedule.persisted:
        if command.model == model:
            found[f"{command.kind}.persist", us(start), us(end)] += 1
    return found


def test_times_are_those_of_what_happened() -> None:
    """Of random schedules: each work on its lane, and each wait, execution, capture and writing
    on the track of its model, once."""
    for seed in range(40):
        random = Random(seed)
        schedule = random_schedule(random, 40)
        trace = traced(*events(schedule, random))
        assert min(count for _, count in trace.waiting) == 0
        works = Counter((work.name, us(work.start), us(work.end)) for work in schedule.work)
        assert Counter((s.name, s.start, s.end) for s in trace.on("gpu")) == works
        for model in schedule.models():
            found = Counter((s.name, s.start, s.end) for s in trace.on(model))
            assert found == expected(schedule, model), (seed, model)


def test_rows_hold_whatever_the_clock_does() -> None:
    """Slices of one row never overlap, and nothing has a negative length, with times at random."""
    for seed in range(40):
        random = Random(seed)
        schedule = random_schedule(random, 40)
        sent: list[wire.Event] = []
        for event in events(schedule, random):
            off = random.choice((0.0, 0.0, -3.0, 7.0, -100.0))
            if isinstance(event, wire.Span):
                sent.append(event._replace(t0=event.t0 + off))
            else:
                sent.append(event._replace(t=event.t + off))
        trace = traced(*sent)
        assert trace.slices
        assert min(count for _, count in trace.waiting) == 0


def test_slices_say_what_they_are_of() -> None:
    """A lane's the models and the size of the batch; a command's its request."""
    trace = traced(
        begin("a", 1, 0),
        begin("b", 7, 0),
        span(["a", "b"], 1, 2, ids=["a:1", "b:7"], n=2, ok=False),
        finish("a", 1, 2),
    )
    (lane,) = trace.on("gpu")
    assert lane.args == {"models": ["a", "b"], "batch": 2, "ok": False}
    wait, execution = trace.on("b")
    assert (wait.args, execution.args) == (
        {"request": "b:7"},
        {"request": "b:7", "batch": 2, "ok": False},
    )


def test_overlapping_commands_of_a_model_have_rows_of_their_own() -> None:
    """Each command stays on one row; the first row is used again when its command is over."""
    entries = entries_of(
        reported(
            begin("m", 1, 0),
            begin("m", 2, 1),
            span(["m"], 2, 3, ids=["m:1"]),
            finish("m", 1, 3),
            begin("m", 3, 3),
            span(["m"], 3, 4, ids=["m:2"]),
            finish("m", 2, 4),
            span(["m"], 4, 5, ids=["m:3"]),
            finish("m", 3, 5),
        )
    )
    Trace(entries)
    rows: dict[str, set[int]] = {}
    for entry in entries:
        if entry["ph"] == "X" and "request" in entry["args"]:
            rows.setdefault(entry["args"]["request"], set()).add(entry["tid"])
    assert all(len(used) == 1 for used in rows.values())
    assert rows["m:1"] == rows["m:3"] != rows["m:2"]


def test_writing_is_on_the_row_of_its_command() -> None:
    """Also while the model's next command runs, which began later."""
    save = "save_weights"
    entries = entries_of(
        reported(
            begin("m", 1, 0, save),
            span(["m"], 1, 2, f"capture:{save}", ids=["m:1"]),
            begin("m", 2, 3),
            span(["m"], 3, 4, ids=["m:2"]),
            finish("m", 2, 4),
            span(["m"], 2, 9, f"persist:{save}", ids=["m:1"], lane="checkpoint"),
            finish("m", 1, 9),
        )
    )
    Trace(entries)
    rows = {e["tid"] for e in entries if e["ph"] == "X" and e["args"].get("request") == "m:1"}
    assert len(rows) == 1


def test_a_span_without_commands_is_shown_all_the_same() -> None:
    """They were submitted before the journals begin, or the engine does not say which."""
    trace = traced(span(["m"], 1, 2, ids=["m:1"]), span(["m"], 2, 3))
    assert shown(trace, "m") == [
        ("forward_backward.execute", 1, 2),
        ("forward_backward.execute", 2, 3),
    ]


def test_a_command_that_is_given_up_has_waited() -> None:
    """Until it was given up, or its model forgotten."""
    trace = traced(
        wire.Register(1, "m"), begin("m", 1, 2), begin("m", 2, 3), finish("m", 1, 5), _forget(7)
    )
    assert sorted(shown(trace, "m")) == [
        ("accept.queue_wait", 1, 7),
        ("forward_backward.queue_wait", 2, 5),
        ("forward_backward.queue_wait", 3, 7),
    ]
    assert all(each.args["given_up"] for each in trace.on("m"))


def _forget(t: float) -> wire.Event:
    return wire.Forget(t, "m")


def test_waiting_commands_are_counted() -> None:
    """At each moment at which one more or one less waits; the one that runs does not."""
    trace = traced(
        begin("a", 1, 1),
        begin("b", 1, 2),
        begin("a", 1, 2.5),  # a retry
        span(["a"], 3, 5, ids=["a:1"]),
        begin("a", 2, 4),
        finish("b", 1, 6),
        until=9,
    )
    assert [(t / 1e6, waiting) for t, waiting in trace.waiting] == [
        (1, 1),
        (2, 2),
        (3, 1),
        (4, 2),
        (6, 1),
    ]


def test_what_is_unfinished_is_shown_as_far_as_it_came() -> None:
    """What lanes work on and what waits, until the last that was heard."""
    trace = traced(
        begin("m", 1, 1),
        wire.State(2, ("m",), "executing:forward_backward"),
        wire.Activity(3, "sampler", "m", "m:0", "save_weights_for_sampler"),
        until=8,
    )
    assert shown(trace, "m") == [("forward_backward.queue_wait", 1, 8)]
    assert shown(trace, "gpu") == [("forward_backward", 2, 8)]
    assert shown(trace, "sampler") == [("save_weights_for_sampler", 3, 8)]
    assert all(each.args["unfinished"] for each in trace.slices)


def test_what_a_lane_put_down_is_not_unfinished() -> None:
    """Its span tells of it, or it is idle."""
    trace = traced(
        wire.State(0, ("m",), "executing:forward_backward"),
        wire.State(1, None, "idle"),
        wire.State(1, ("m",), "executing:forward_backward"),
        span(["m"], 1, 2),
        wire.Activity(3, "sampler", "m", "m:0", "save_weights_for_sampler"),
        wire.Activity(4, "sampler", None, None, None),
        until=8,
    )
    assert shown(trace, "gpu") == [("forward_backward", 1, 2)]
    assert shown(trace, "sampler") == []


def test_what_a_process_that_is_gone_did_ends_with_it() -> None:
    """Not with the last that another one said."""
    trace = Trace(
        entries_of(
            reported(begin("m", 1, 1), wire.State(2, ("m",), "executing:forward")),
            Report(5.0, "boot", None, (), True),
            reported(begin("n", 1, 6), boot="another"),
            until=9,
        )
    )
    assert shown(trace, "gpu") == [("forward", 2, 5)]
    assert shown(trace, "m") == [("forward_backward.queue_wait", 1, 5)]
    assert shown(trace, "n") == [("forward_backward.queue_wait", 6, 9)]


def test_processes_are_told_apart() -> None:
    """A forked child's commands are its trainer's; a backend's lanes are its own, and it has no
    models; a process that connected before the journals begin is known by what it does."""
    trace = Trace(
        entries_of(
            Report(0, "t", hello("t")._replace(pid=10), (), False),
            Report(0, "c", hello("c", parent="t")._replace(pid=11), (), False),
            Report(0, "b", hello("b", role="backend")._replace(pid=12), (), False),
            reported(begin("m", 1, 0), boot="t"),
            reported(span(["m"], 1, 2, ids=["m:1"]), boot="c"),
            reported(span(["m"], 1, 2, "device:forward_backward", lane="device"), boot="b"),
            reported(span(["x"], 1, 2, "device:forward_backward", lane="device"), boot="?"),
            reported(span(["x"], 1, 2), boot="!"),
        )
    )
    assert {(each.group, each.track) for each in trace.slices} == {
        ("models of trainer 10", "m"),
        ("lanes of trainer 11", "gpu"),
        ("lanes of backend 12", "device"),
        ("lanes of a backend", "device"),
        ("lanes of the trainer", "gpu"),
        ("models of the trainer", "x"),
    }
    assert [each.name for each in trace.on("m")] == [
        "forward_backward.queue_wait",
        "forward_backward.execute",
    ]


def test_what_ended_before_is_left_out() -> None:
    """What reaches into the time that was asked for is shown from its beginning."""
    first = begin("m", 1, 0), span(["m"], 1, 2, ids=["m:1"])
    second = begin("m", 2, 0), span(["m"], 2, 5, ids=["m:2"])
    trace = Trace(entries_of(reported(*first, *second), since=3.0))
    assert shown(trace, "m") == [("forward_backward.execute", 2, 5)]
    assert shown(trace, "gpu") == [("forward_backward", 2, 5)]
    assert trace.waiting == []


def test_rows_of_a_track_are_bounded() -> None:
    """What finds none is left out, and counted; so is what ended before it began."""
    tracer = Tracer(0.0)
    sent = [span(["m"], 0, 1, lane="device", name="device:f") for _ in range(MAX_ROWS + 3)]
    entries = list(tracer.report(reported(*sent, span(["m"], 2, 1, "device:f", lane="device"))))
    assert len(entries) == tracer.slices == MAX_ROWS
    assert tracer.left_out == 4


def test_commands_whose_end_was_lost_keep_nobody_out() -> None:
    """However many there are of a model: their rows are used again once all are taken."""
    sent: list[wire.Event] = []
    for number in range(3 * MAX_ROWS):
        sent.append(begin("m", number, number))
        sent.append(span(["m"], number, number + 1, ids=[f"m:{number}"]))
    assert len(traced(*sent).on("m")) == 2 * 3 * MAX_ROWS


def rivals() -> list[wire.Event]:
    """What a model and another one do, who must not get to know of each other."""
    return [
        wire.Register(0, "mine"),
        wire.Register(0, "rival"),
        span(["rival"], 0, 1, "accept"),
        span(["mine"], 1, 2, "accept"),
        begin("mine", 1, 2),
        begin("rival", 41, 2),
        begin("rival", 42, 2, "secret_kind"),
        span(["mine", "rival"], 3, 4, ids=["mine:1", "rival:41"], n=2),
        span(["rival"], 4, 6, "capture:secret_kind", ids=["rival:42"]),
        span(["rival"], 6, 9, "persist:secret_kind", ids=["rival:42"], lane="checkpoint"),
        finish("rival", 42, 9),
        begin("rival", 43, 9, "secret_kind"),
        begin("rival", 44, 9, "secret_kind"),
        finish("rival", 44, 10),
        begin("mine", 2, 9),
        wire.State(10, ("rival",), "executing:secret_kind"),
        wire.Activity(10, "sampler", "rival", "rival:45", "secret_kind"),
        wire.Forget(11, "rival"),
    ]


def test_one_models_form_tells_nothing_of_others() -> None:
    """No id, no request, no kind of work, no count; only the time that lanes worked for them."""
    entries = entries_of(reported(*rivals()), until=20, model="mine")
    said = json.dumps(entries)
    assert "rival" not in said
    assert "secret" not in said
    assert not any(number in said for number in (":41", ":42", ":43", ":44", ":45"))
    trace = Trace(entries)
    assert shown(trace, "gpu") == [
        (NEIGHBOR, 0, 1),
        ("accept", 1, 2),
        ("forward_backward", 3, 4),
        (NEIGHBOR, 4, 6),
        (NEIGHBOR, 10, 20),
    ]
    assert shown(trace, "checkpoint") == [(NEIGHBOR, 6, 9)]
    assert shown(trace, "sampler") == [(NEIGHBOR, 10, 20)]
    assert {each.track for each in trace.slices} == {"gpu", "checkpoint", "sampler", "mine"}
    assert all(each.args == {} for each in trace.slices if each.name == NEIGHBOR)
    assert [count for _, count in trace.waiting] == [1, 0, 1, 0, 1]
    shared = trace.on("gpu")[2]
    assert shared.args == {"models": ["mine"], "batch": 2}


def test_one_models_form_shows_of_it_what_the_whole_shows() -> None:
    """Of random schedules: the same slices on its own track, and the same times on the lanes."""

    def times(trace: Trace, lane: str) -> list[tuple[int, int]]:
        return [(each.start, each.end) for each in trace.on(lane)]

    def own(trace: Trace, model: str) -> list[Entry]:
        return [each._replace(group="")._asdict() for each in trace.on(model, "models")]

    for seed in range(20):
        random = Random(seed)
        schedule = random_schedule(random, 40)
        sent = events(schedule, random)
        whole = traced(*sent)
        for model in schedule.models():
            one = traced(*sent, model=model)
            assert own(one, model) == own(whole, model)
            for lane in ("gpu", "checkpoint", "sampler"):
                assert times(one, lane) == times(whole, lane)


@pytest.mark.parametrize("model", [None, "m"])
def test_nothing_makes_nothing(model: str | None) -> None:
    """A trainer that connected, and no more."""
    report = Report(0.0, "boot", hello(), (), False)
    assert Trace(entries_of(report, model=model)).slices == []
