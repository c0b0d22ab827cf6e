"""Several readers at once, each with intervals of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.faults import (
    Reader,
    assert_adds_up,
    assert_all_applied,
    assert_smooth,
    load,
    progressed,
    reading,
)
from support.sidecar import start_sidecar, wait_until
from support.soak import rounds


def test_no_reader_takes_anything_from_another(tmp_path: Path) -> None:
    """Two with names, one without (whose resets are destructive), of one model and of all: each
    one's intervals add up to everything, and to the same seconds."""
    with start_sidecar(tmp_path) as sidecar, load(sidecar.socket) as trainer:
        readers = [
            Reader(sidecar.url, name, model)
            for model in (None, "m-0")
            for name in ("loop-1", "loop-2", None)
        ]
        with reading(*readers):
            for _ in range(rounds(10, soak=500)):
                progressed(sidecar, 500)
            wait_until(lambda: min(reader.answers for reader in readers), lambda least: least > 10)
        report = trainer.tell("stop")
        assert_all_applied(sidecar, report)
        for reader in readers:
            reader.finish()
            assert reader.incomplete == 0
            assert_adds_up(reader, report)
            assert reader.delivery["applied"] == reader.delivery["sent"]
        for of_one_model in (readers[:3], readers[3:]):
            for phase, seconds in of_one_model[0].seconds.items():
                for reader in of_one_model[1:]:
                    assert reader.seconds[phase] == pytest.approx(seconds, abs=0.01)
        assert_smooth(report)
        trainer.close()
