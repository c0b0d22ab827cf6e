"""Real text to train on: the standard library's own sources, a different part for each tenant."""

from __future__ import annotations

import random
import sysconfig
from pathlib import Path
from typing import Any, Final

MAX_PART: Final = 400_000
"""Bytes of a tenant's part: more than a demonstration reads, and quick to load."""


def part(index: int, of: int) -> bytes:
    """Part ``index`` of ``of``: no two parts share a file. Raises ValueError out of range."""
    if not 0 <= index < of:
        raise ValueError(f"there is no part {index} of {of}")
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    text = bytearray()
    for file in files[index::of]:
        text += file.read_bytes()
        if len(text) >= MAX_PART:
            break
    return bytes(text)


class Sampler:
    """Random excerpts of a text as training data. The same seed draws the same ones."""

    def __init__(self, text: bytes, *, length: int, seed: int) -> None:
        """``length``: tokens of an excerpt, one per byte."""
        self._text = text
        self._length = length
        self._random = random.Random(seed)

    def draw(self, count: int) -> list[dict[str, Any]]:
        """``count`` sequences, each with the bytes that follow as its targets."""
        return [self._one() for _ in range(count)]

    def _one(self) -> dict[str, Any]:
        start = self._random.randrange(len(self._text) - self._length)
        excerpt = list(self._text[start : start + self._length + 1])
        return {
            "model_input": {"tokens": excerpt[:-1], "length": self._length},
            "loss_fn_inputs": {"target_tokens": excerpt[1:]},
        }
