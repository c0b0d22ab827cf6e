"""The wall clock is set back and forth while a trainer reports."""

from __future__ import annotations

from pathlib import Path

from support.faults import (
    Reader,
    arrived,
    assert_nothing_negative,
    assert_smooth,
    load,
    onlooked,
    progressed,
    settled,
)
from support.sidecar import start_sidecar
from support.soak import rounds


def test_no_number_is_negative_and_what_is_left_out_is_counted(tmp_path: Path) -> None:
    """By half a second and by an hour, every few calls: every event is applied, no number of any
    answer is below zero, and records that would be are counted instead."""
    with start_sidecar(tmp_path) as sidecar, load(sidecar.socket, clock="stepped") as trainer:
        reader = Reader(sidecar.url, "loop", "m-0")
        for _ in range(rounds(10, soak=500)):
            progressed(sidecar, 500)
            reader.read()
        report = trainer.tell("stop")
        answer = settled(sidecar, report)
        assert_nothing_negative(answer)
        delivery = answer["delivery"]
        assert arrived(delivery) == delivery["applied"] == report["calls"]
        assert delivery["negative"] > 0
        recorded = sum(phase["count"] for phase in answer["phases"].values())
        assert recorded + delivery["negative"] == sum(report["phases"]["*"].values())
        for model in report["phases"]:
            of_model = onlooked(sidecar, model)
            assert_nothing_negative(of_model)
            for name, phase in of_model["phases"].items():
                assert phase["count"] <= report["phases"][model][name]
        reader.finish()
        assert reader.incomplete > 0
        assert sidecar.health()["faults"] == 0
        assert_smooth(report)
        trainer.close()
