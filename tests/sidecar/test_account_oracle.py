"""Waits, shares and the step account against a brute force that classifies every instant."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lilo_engine_hook import wire
from lilo_sidecar.core.critical_path import CriticalPath
from lilo_sidecar.core.timing import Step
from support.feed import Feed, hello
from support.schedule import LANE_OF, Command, Schedule, Work, events, random_schedule

PARTS = ("mine_s", "shared_batch_s", "neighbors_s", "overhead_s", "persist_s", "client_s")


class BruteForce:
    """Looks at one instant at a time, with nothing but the raw intervals."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        points: set[float] = set(schedule.registered.values())
        for work in schedule.work:
            points |= {work.start, work.end}
        for command in schedule.commands:
            points |= {command.submitted, command.finished}
        self.points = sorted(points)
        # Captures that take no time may end at one moment: still one came after the other.
        self.turns = {id(c): turn for turn, work in enumerate(schedule.work) for c in work.commands}

    def instants(self, start: float, end: float) -> Iterator[tuple[float, float]]:
        """Midpoints and lengths of the pieces between neighbouring points of the grid."""
        grid = sorted({start, end, *(p for p in self.points if start < p < end)})
        for left, right in pairwise(grid):
            yield (left + right) / 2, right - left

    def running(self, t: float) -> Work | None:
        """What the gpu lane runs."""
        return next((w for w in self.schedule.work if w.start <= t < w.end), None)

    def persisting(self, kind: str, t: float) -> Command | None:
        """What the lane that persists a kind works on: the first captured, unfinished one."""
        captured = [
            c
            for c in self.schedule.commands
            if c.captured is not None
            and LANE_OF[c.kind] == LANE_OF.get(kind)
            and c.captured <= t < c.finished
        ]
        return min(captured, key=lambda c: self.turns[id(c)], default=None)

    def waited_for(self, model: str, t: float) -> str | None:
        """The kind of command that a model's waiting at ``t`` will end with; None if it does
        not wait."""
        mine = [c for c in self.schedule.commands if c.model == model]
        queued = [
            c for c in mine
            if c.submitted <= t < (c.finished if c.start is None else c.start)
        ]  # fmt: skip
        accepting = self.accepting(model, t)
        if not queued and not accepting:
            return None
        own = [w for w in self.schedule.work if model in w.models and w.start >= t]
        next_own = min(own, key=lambda w: (w.start, w.end), default=None)
        ends = float("inf") if next_own is None else next_own.start
        # The wait may end before, with the last queued command given up.
        for gap_start, gap_end, last in self.gaps(model):
            if t < gap_start <= ends and gap_start < gap_end:
                return last.kind
        assert next_own is not None
        members = [c for c in next_own.commands if c.model == model]
        return members[0].kind if members else "accept"

    def accepting(self, model: str, t: float) -> bool:
        asked = self.schedule.registered.get(model)
        if asked is None or t < asked:
            return False
        accepted = [w.start for w in self.schedule.work if w.name == "accept" and model in w.models]
        return t <= accepted[0]  # at that very moment, too: what waits then, waited for this

    def gaps(self, model: str) -> Iterator[tuple[float, float, Command]]:
        """Stretches without anything queued that begin by giving up the last queued command."""
        mine = [c for c in self.schedule.commands if c.model == model]
        for command in mine:
            if command.start is not None:
                continue
            t = command.finished
            # One that starts at this very moment is what the waiting ends with.
            still = [
                c for c in mine
                if c is not command
                and c.submitted <= t
                and (t < c.finished if c.start is None else t <= c.start)
            ]  # fmt: skip
            if not still and not self.accepting(model, t):
                later = [c.submitted for c in mine if c.submitted > t]
                yield t, min(later, default=float("inf")), command

    def shares(self, work: Work) -> dict[str, float]:
        """Each model's part of a batch."""
        weights: dict[str, float] = dict.fromkeys(work.models, 0.0)
        for at, command in enumerate(work.commands):
            if work.tokens is not None:
                weights[command.model] += work.tokens[at]
            else:
                weights[command.model] += 1.0 if command.weight is None else command.weight
        total = sum(weights.values())
        if not total:
            return {m: 1 / len(weights) for m in weights}
        return {m: weight / total for m, weight in weights.items()}

    def step(self, model: str, start: float, end: float) -> dict[str, float]:
        """The six parts of a model's time."""
        parts = dict.fromkeys(PARTS, 0.0)
        for t, length in self.instants(start, end):
            work = self.running(t)
            if work is not None and model in work.models:
                share = self.shares(work)[model]
                parts["mine_s"] += share * length
                parts["shared_batch_s"] += (1 - share) * length
                continue
            parts[self.state(model, t, work)] += length
        return parts

    def state(self, model: str, t: float, work: Work | None) -> str:
        kind = self.waited_for(model, t)
        if kind is not None:
            if work is not None:
                return "neighbors_s"
            head = self.persisting(kind, t)
            if head is None:
                return "overhead_s"
            return "persist_s" if head.model == model else "neighbors_s"
        mine = [c for c in self.schedule.commands if c.model == model and c.start is not None]
        if any(c.captured is not None and c.captured <= t < c.finished for c in mine):
            return "persist_s"
        ran = {id(c): w.end for w in self.schedule.work for c in w.commands}
        if any(c.captured is None and ran[id(c)] <= t < c.finished for c in mine):
            return "overhead_s"
        return "client_s"

    def waits(self, model: str) -> dict[str, list[float]]:
        """Per kind: what the started commands waited through: own, neighbors, overhead."""
        sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        waits = [
            (c.kind, c.submitted, c.start)
            for c in self.schedule.commands
            if c.model == model and c.start is not None
        ]
        for work in self.schedule.work:
            if work.name == "accept" and model in work.models:
                waits.append(("accept", self.schedule.registered[model], work.start))
        for kind, start, end in waits:
            row = sums[kind]
            for t, length in self.instants(start, end):
                work_now = self.running(t)
                head = self.persisting(kind, t) if work_now is None else None
                if work_now is not None:
                    row[0 if model in work_now.models else 1] += length
                elif head is not None:
                    row[0 if head.model == model else 1] += length
                else:
                    row[2] += length
        return dict(sums)


def check_step(step: Step, expected: dict[str, float]) -> None:
    """Every part is what the brute force says."""
    for part in PARTS:
        assert getattr(step, part) == pytest.approx(expected[part], abs=1e-9), part
    assert sum(getattr(step, part) for part in PARTS) == pytest.approx(step.wall_s, abs=1e-9)


@settings(max_examples=1500)
@given(st.integers(0, 2**32), st.integers(1, 14), st.booleans())
def test_account_agrees_with_brute_force(seed: int, size: int, reset: bool) -> None:
    """Read at any time, with and without resets: each interval's parts are those of its
    instants, intervals follow each other without a gap, and in the end the waits and shares
    of all commands are what they waited through and had."""
    random = Random(seed)
    schedule = random_schedule(random, size)
    brute = BruteForce(schedule)
    feed = Feed(CriticalPath(), hello(started=-1.0))
    ends: dict[str, float] = {}
    waits: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0] * 4)
    shares: dict[str, float] = defaultdict(float)

    def read(model: str) -> None:
        answer = feed.timing(model, reset=reset)
        for kind, wait in answer.waits.items():
            row = (wait.self_s, wait.neighbors_s, wait.overhead_s, wait.unattributed_s)
            assert sum(row) == pytest.approx(answer.phases[f"{kind}.queue_wait"].total_s, abs=1e-9)
            old = waits[model, kind] if reset else [0.0] * 4
            waits[model, kind] = [a + b for a, b in zip(old, row, strict=True)]
        shares[model] = (shares[model] if reset else 0.0) + sum(answer.shares.values())
        step = answer.step
        if step is None:
            return
        if reset:
            assert step.since == ends.get(model, step.since)
            ends[model] = step.until
        check_step(step, brute.step(model, step.since, step.until))

    for event in events(schedule, random):
        feed(event)
        if random.random() < 0.2:
            read(random.choice(schedule.models()))
    for model in schedule.models():
        read(model)
        expected = brute.waits(model)
        assert {kind for m, kind in waits if m == model} == set(expected)
        for kind, row in expected.items():
            assert waits[model, kind] == pytest.approx([*row, 0.0], abs=1e-9)
        share = sum(brute.shares(w)[model] * (w.end - w.start)
                    for w in schedule.work if model in w.models)  # fmt: skip
        assert shares[model] == pytest.approx(share, abs=1e-9)
    busy = sum(work.end - work.start for work in schedule.work)
    assert sum(shares.values()) == pytest.approx(busy, abs=1e-9)
    assert sum(feed.timing().shares.values()) == pytest.approx(busy, abs=1e-9)


@settings(max_examples=500)
@given(st.integers(0, 2**32), st.integers(1, 12))
def test_account_is_whole_whatever_comes(seed: int, size: int) -> None:
    """Spans that come late, twice, overlap or run backwards, events in any order: no part is
    below zero, and they add up to the wall in every answer, in JSON as well."""
    random = Random(seed)
    schedule = random_schedule(random, size)
    feed = Feed(CriticalPath(), hello(started=-1.0))
    shuffled = events(schedule, random)
    for _ in range(random.randint(1, 2 * size)):
        at = random.randrange(len(shuffled))
        event = shuffled.pop(at)
        shuffled.insert(min(len(shuffled), at + random.randint(0, 6)), event)
        if isinstance(event, wire.Span) and random.random() < 0.3:
            shift = random.randint(-20, 20) / 4
            shuffled.append(event._replace(t0=event.t0 + shift, t1=event.t1 + shift / 2))
        if random.random() < 0.1:
            shuffled.insert(random.randrange(len(shuffled)), wire.Forget(0.0, "a"))
    for event in shuffled:
        feed(event)
        if random.random() < 0.3:
            for model in schedule.models():
                answer = feed.timing(model, reset=random.random() < 0.3)
                if answer.step is not None:
                    parts = [getattr(answer.step, part) for part in PARTS]
                    assert min(parts) >= -1e-9
                    assert sum(parts) == pytest.approx(answer.step.wall_s, abs=1e-9)
                for kind, wait in answer.waits.items():
                    row = (wait.self_s, wait.neighbors_s, wait.overhead_s, wait.unattributed_s)
                    assert min(row) >= -1e-9
                    total = answer.phases[f"{kind}.queue_wait"].total_s
                    assert sum(row) == pytest.approx(total, abs=1e-9)


def test_brute_force_sees_the_textbook_case() -> None:
    """The oracle itself, on a schedule small enough to do by hand."""
    a = Command("a", 0, "forward_backward", 0.0, None, 2.0, None, 6.0)
    b = Command("b", 0, "forward_backward", 1.0, None, 5.0, None, 8.0)
    first = Work("forward_backward", 2.0, 4.0, ("a",), [a])
    second = Work("forward_backward", 5.0, 8.0, ("b",), [b])
    brute = BruteForce(Schedule([a, b], [first, second]))
    assert brute.step("b", 1.0, 8.0) == {
        "mine_s": 3.0, "shared_batch_s": 0.0, "neighbors_s": 2.0, "overhead_s": 2.0,
        "persist_s": 0.0, "client_s": 0.0,
    }  # fmt: skip
    assert brute.step("a", 0.0, 6.0)["overhead_s"] == 4.0
    assert brute.waits("b") == {"forward_backward": [0.0, 2.0, 2.0]}
    assert bisect_right(brute.points, 4.5) == 4
