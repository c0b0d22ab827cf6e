"""Two intervals that follow each other, as one. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ._answer import Interval, Numbers, TimingAnswer


def merge_answers(earlier: TimingAnswer, later: TimingAnswer) -> TimingAnswer:
    """The figures of both intervals together: counts and seconds add, a maximum is the larger
    one, means follow, and the whole is complete if both are. What counts from the trainer's start
    is the later one's."""
    return TimingAnswer(
        phases=_merge_tables(earlier.phases, later.phases, _merge_phase),
        waits=_merge_tables(earlier.waits, later.waits, _add),
        shares=_add(earlier.shares, later.shares),
        step=_merge_steps(earlier.step, later.step),
        gauges={**earlier.gauges, **later.gauges},
        # Without an interval it counts from the trainer's start.
        delivery=later.delivery
        if later.interval is None
        else _add(earlier.delivery, later.delivery),
        interval=_merge_intervals(earlier.interval, later.interval),
        journal=earlier.journal if later.journal is None else later.journal,
        others={**earlier.others, **later.others},
    )


def _merge_intervals(earlier: Interval | None, later: Interval | None) -> Interval | None:
    if earlier is None or later is None:
        return later if earlier is None else earlier
    return Interval(earlier.begin, later.cursor, earlier.complete and later.complete)


def _merge_tables(
    earlier: Mapping[str, Numbers],
    later: Mapping[str, Numbers],
    merge: Callable[[Numbers, Numbers], Numbers],
) -> dict[str, Numbers]:
    merged = {**earlier, **later}
    for name in earlier.keys() & later.keys():
        merged[name] = merge(earlier[name], later[name])
    return merged


def _merge_phase(earlier: Numbers, later: Numbers) -> Numbers:
    count = earlier["count"] + later["count"]
    total = earlier["total_s"] + later["total_s"]
    batched = sum(phase["count"] * phase["mean_batch"] for phase in (earlier, later))
    return {
        **earlier,
        **later,
        "count": count,
        "total_s": total,
        "mean_s": total / count if count else 0.0,
        "max_s": max(earlier["max_s"], later["max_s"]),
        "mean_batch": batched / count if count else 0.0,
    }


def _merge_steps(earlier: Numbers | None, later: Numbers | None) -> Numbers | None:
    if earlier is None or later is None:
        return later if earlier is None else earlier
    merged = {**_add(earlier, later)}
    for point, choose in (("since", min), ("until", max)):
        if point in earlier and point in later:
            merged[point] = choose(earlier[point], later[point])
    return merged


def _add(earlier: Numbers, later: Numbers) -> Numbers:
    return {
        name: earlier.get(name, 0) + later.get(name, 0)
        for name in sorted(earlier.keys() | later.keys())
    }
