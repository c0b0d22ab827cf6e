"""Random schedules of a shared trainer, as raw intervals, and the events they would send.

Times are whole quarters of a second, so that sums in floating point are exact.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from lilo_engine_hook import wire

LANE_OF = {"save_weights": "checkpoint", "save_weights_for_sampler": "sampler"}
KINDS = ("forward_backward", "optim_step", *LANE_OF)


@dataclass(eq=False)
class Command:
    """One command's life. ``start`` is None if it was given up while it waited."""

    model: str
    seq: int
    kind: str
    submitted: float
    weight: float | None = None
    start: float | None = None
    captured: float | None = None
    finished: float = float("inf")

    @property
    def request_id(self) -> str:
        return f"{self.model}:{self.seq}"


@dataclass(eq=False)
class Work:
    """One span of the gpu lane; an acceptance has no commands."""

    name: str
    start: float
    end: float
    models: tuple[str, ...]
    commands: list[Command]
    tokens: tuple[float, ...] | None = None


@dataclass
class Schedule:
    """Everything that happened."""

    commands: list[Command] = field(default_factory=list)
    work: list[Work] = field(default_factory=list)
    registered: dict[str, float] = field(default_factory=dict)
    """When each model was asked for."""
    persisted: list[tuple[Command, float, float]] = field(default_factory=list)

    def models(self) -> list[str]:
        return sorted({command.model for command in self.commands} | set(self.registered))


def random_schedule(random: Random, size: int) -> Schedule:
    """Pipelining, coalescing, failures (they look alike), commands given up, submissions out of
    order, persistence that overlaps later work, and idle gaps, all mixed."""

    def quarters(low: int, high: int) -> float:
        return random.randint(low, high) / 4

    schedule = Schedule()
    models = ["a", "b", "c"][: random.randint(1, 3)]
    clock = dict.fromkeys(models, 0.0)
    waiting: dict[str, list[Command]] = {model: [] for model in models}
    accepting = []
    for model in models:
        if random.random() < 0.5:
            schedule.registered[model] = clock[model] = quarters(0, 8)
            accepting.append(model)
    for seq in range(size):
        model = random.choice(models)
        clock[model] += quarters(0, 12) if random.random() < 0.6 else 0.0
        weight = random.choice((None, 1.0, 3.0, 0.0))
        command = Command(model, seq, random.choice(KINDS), clock[model], weight)
        schedule.commands.append(command)
        waiting[model].append(command)
    now = 0.0
    handed_out = dict.fromkeys(models, 0.0)
    lane_free = dict.fromkeys(LANE_OF.values(), 0.0)
    gate = random.random() < 0.5  # whether captures wait for their persistence lane

    def persist(command: Command) -> None:
        lane = LANE_OF[command.kind]
        begun = max(lane_free[lane], command.captured or 0.0) + quarters(0, 2)
        lane_free[lane] = begun + quarters(0, 24)
        schedule.persisted.append((command, begun, lane_free[lane]))
        # A model's results are handed out in the order of its commands.
        command.finished = max(lane_free[lane] + quarters(0, 1), handed_out[command.model])
        lane_free[lane] = command.finished

    while accepting or any(waiting.values()):
        now += quarters(0, 6) if random.random() < 0.5 else 0.0
        ready = [
            m
            for m in models
            if m not in accepting and waiting[m] and waiting[m][0].submitted <= now
        ]
        if accepting and schedule.registered[accepting[0]] <= now and random.random() < 0.7:
            model = accepting.pop(0)
            end = now + quarters(0, 4)
            schedule.work.append(Work("accept", now, end, (model,), []))
            now = end
            continue
        if not ready:
            now += 0.25
            continue
        model = random.choice(ready)
        command = waiting[model][0]
        if random.random() < 0.1:
            command.finished = max(now, command.submitted)  # given up while it waited
            waiting[model].pop(0)
            now = command.finished + 0.25  # two at once would leave open which was waited for
            continue
        if gate and command.kind in LANE_OF and lane_free[LANE_OF[command.kind]] > now:
            others = [m for m in ready if waiting[m][0].kind not in LANE_OF]
            if not others:
                now += 0.25
                continue
            command = waiting[random.choice(others)][0]
        batch = [command]
        if command.kind == "forward_backward":
            for other in ready:
                head = waiting[other][0]
                if head is not command and head.kind == command.kind and random.random() < 0.7:
                    batch.append(head)
        for member in batch:
            waiting[member.model].remove(member)
            member.start = now
        end = now + quarters(0, 16)
        tokens = tuple(quarters(0, 8) for _ in batch) if random.random() < 0.3 else None
        name = ("capture:" if command.kind in LANE_OF else "") + command.kind
        members = tuple(member.model for member in batch)
        schedule.work.append(Work(name, now, end, members, batch, tokens))
        now = end
        if command.kind in LANE_OF:
            command.captured = end
            persist(command)
        else:
            for member in batch:
                handed_out[member.model] = max(handed_out[member.model], end + quarters(0, 3))
                member.finished = handed_out[member.model]
    return schedule


def events(schedule: Schedule, random: Random) -> list[wire.Event]:
    """What the engine's observer sends, in the order of sending: submissions and finishes as
    they happen, spans when they end, the spans of persisting late now and then."""
    timed: list[tuple[float, int, float, wire.Event]] = []

    def send(t: float, order: int, event: wire.Event, among: float | None = None) -> None:
        timed.append((t, order, random.random() if among is None else among, event))

    for kind, lane in LANE_OF.items():
        send(-1.0, 0, wire.Activity(-1.0, lane, None, None, kind))
    for model, t in schedule.registered.items():
        send(t, 0, wire.Register(t, model))
    for command in schedule.commands:
        t = command.submitted
        send(t, 0, wire.Begin(t, command.model, command.request_id, command.seq, command.kind,
                              command.weight))  # fmt: skip
        t = command.finished
        send(t, 3, wire.Finish(t, command.model, command.request_id))
    for at, work in enumerate(schedule.work):
        ids = tuple(command.request_id for command in work.commands)
        span = wire.Span(work.models, work.name, "gpu", work.start, work.end, ids, None,
                         len(ids) or None, random.choice((None, True, False)),
                         work.tokens)  # fmt: skip
        send(work.end, 1, span, at)  # the lane is serial: so are its spans
    for command, start, end in schedule.persisted:
        late = random.choice((0.0, 0.0, 5.0))
        span = wire.Span((command.model,), f"persist:{command.kind}", LANE_OF[command.kind], start,
                         end, (command.request_id,), None, 1, True, None)  # fmt: skip
        send(end + late, 2, span)
    return [event for *_, event in sorted(timed, key=lambda row: row[:3])]
