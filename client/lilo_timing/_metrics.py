"""A timing answer as flat metrics, for any logger. Pure.

| metric                               | from                                               |
|--------------------------------------|----------------------------------------------------|
| ``lilo/<phase>.<stat>``              | ``phases``: count, total_s, mean_s, max_s, mean_batch |
| ``lilo/<kind>.queue_wait.<part>``    | ``waits``: self_s, neighbors_s, overhead_s, ...    |
| ``lilo/<kind>.execute.share_s``      | ``shares``                                         |
| ``lilo/step.<part>``                 | ``step``: wall_s, mine_s, ...                      |
| ``lilo/step.<part>_fraction``        | each part of the step over its wall                |
| ``lilo/<gauge>``                     | ``gauges``                                         |
| ``lilo/interval.complete``           | ``interval``: 1 or 0                               |
| ``lilo/delivery.<name>``             | ``delivery``                                       |
| ``lilo/journal.writing``             | ``journal``: 1 or 0                                |
| ``lilo/<section>.<name>``            | numbers in sections of a newer server              |
"""

from __future__ import annotations

from collections.abc import Iterator

from ._answer import Numbers, TimingAnswer


def flatten(answer: TimingAnswer, prefix: str) -> dict[str, float]:
    """Metrics by name, in a stable order."""
    return {f"{prefix}/{name}": value for name, value in _named(answer)}


def _named(answer: TimingAnswer) -> Iterator[tuple[str, float]]:
    for phase, stats in answer.phases.items():
        yield from _section(phase, stats)
    for kind, parts in answer.waits.items():
        yield from _section(f"{kind}.queue_wait", parts)
    for kind, share in answer.shares.items():
        yield f"{kind}.execute.share_s", share
    if answer.step is not None:
        yield from _section("step", answer.step)
        yield from _section("step", _fractions(answer.step))
    yield from answer.gauges.items()
    if answer.interval is not None:
        yield "interval.complete", int(answer.interval.complete)
    yield from _section("delivery", answer.delivery)
    if answer.journal is not None:
        yield "journal.writing", int(answer.journal)
    for section, numbers in answer.others.items():
        yield from _section(section, numbers)


def _section(name: str, numbers: Numbers) -> Iterator[tuple[str, float]]:
    for stat, value in numbers.items():
        yield f"{name}.{stat}", value


def _fractions(step: Numbers) -> Numbers:
    """Of the wall, by part; none while the wall is 0."""
    wall = step.get("wall_s", 0.0)
    if wall <= 0.0:
        return {}
    return {
        f"{name.removesuffix('_s')}_fraction": seconds / wall
        for name, seconds in step.items()
        if name.endswith("_s") and name != "wall_s"
    }
