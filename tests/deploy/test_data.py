"""The tenants' text."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from lilo_local.tenant.data import MAX_PART, Sampler, part


def test_parts_are_disjoint_and_real() -> None:
    """Each tenant has text enough of its own, from the standard library, and none of another's."""
    parts = [part(index, 3) for index in range(3)]
    for text in parts:
        assert len(text) > MAX_PART / 2
        text.decode("utf-8")
    known = Path(argparse.__file__).read_bytes()
    assert sum(known in text for text in parts) == 1
    lines = [{line for line in text.splitlines() if len(line) > 70} for text in parts]
    for index, mine in enumerate(lines):
        for other in lines[index + 1 :]:
            # Only what files have in common, such as their licences.
            assert len(mine & other) < 0.02 * len(mine)
    with pytest.raises(ValueError, match="there is no part 3 of 3"):
        part(3, 3)


def test_targets_are_the_bytes_that_follow() -> None:
    """Each excerpt is from the text; the same seed draws the same, another seed others."""
    text = bytes(range(256)) * 4
    drawn = Sampler(text, length=16, seed=1).draw(5)
    for datum in drawn:
        tokens, targets = datum["model_input"]["tokens"], datum["loss_fn_inputs"]["target_tokens"]
        assert len(tokens) == datum["model_input"]["length"] == 16
        assert bytes(tokens + targets[-1:]) in text
        assert targets[:-1] == tokens[1:]
    assert drawn == Sampler(text, length=16, seed=1).draw(5)
    assert drawn != Sampler(text, length=16, seed=2).draw(5)
