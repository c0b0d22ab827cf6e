"""A small mutating fuzzer that keeps what reaches new code: the corpus.

The corpus is files of bytes. A run takes each of them as it is and then changed at random; a
soaking one (`support.soak`) also watches which lines of the code are reached, and adds the inputs
that reach new ones to the corpus.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

from support.soak import SOAKING

CORPUS = Path(__file__).parents[1] / "fuzz" / "corpus"
_INTERESTING = (0x00, 0x01, 0x7F, 0x80, 0x8F, 0x90, 0xC0, 0xC1, 0xC4, 0xC7, 0xCB, 0xD9, 0xDD, 0xFF)
_LARGEST = 64 * 1024


def fuzz(name: str, run: Callable[[bytes], object], examples: int, seed: int = 0) -> int:
    """Call ``run`` with every input of a corpus and with ``examples`` changed ones. It raises
    where it finds a fault, and the input that it was is in the message. Returns how many inputs
    the corpus has."""
    random = Random(seed)
    kept = {path.name: path.read_bytes() for path in sorted((CORPUS / name).iterdir())}
    assert kept, f"the corpus {name} is empty"
    seen: set[tuple[str, int]] = set()
    inputs = list(kept.values())
    for data in inputs:
        _run(run, data, seen)
    for _ in range(examples):
        data = _changed(random, inputs)
        if _run(run, data, seen):
            inputs.append(data)
            digest = hashlib.sha256(data).hexdigest()[:16]
            (CORPUS / name / f"found-{digest}").write_bytes(data)
    return len(inputs)


def _run(run: Callable[[bytes], object], data: bytes, seen: set[tuple[str, int]]) -> bool:
    """Whether the input reached new lines, where that is watched."""
    before = len(seen)
    if SOAKING:
        sys.settrace(_tracer(seen))
    try:
        run(data)
    except BaseException as error:
        error.add_note(f"the input was {data[:2000].hex()}")
        raise
    finally:
        sys.settrace(None)
    return len(seen) > before


def _tracer(seen: set[tuple[str, int]]) -> Callable[[FrameType, str, Any], Any]:
    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        name = frame.f_code.co_filename
        if "/lilo_" not in name:
            return None
        seen.add((name, frame.f_lineno))
        return trace

    return trace


def _changed(random: Random, inputs: list[bytes]) -> bytes:
    data = bytearray(random.choice(inputs))
    for _ in range(random.choice((1, 1, 2, 4, 16))):
        at = random.randrange(len(data) + 1)
        match random.randrange(6):
            case 0 if data:
                data[at % len(data)] = random.randrange(256)
            case 1 if data:
                data[at % len(data)] = random.choice(_INTERESTING)
            case 2:
                data[at:at] = random.randbytes(random.randrange(1, 9))
            case 3:
                del data[at : at + random.randrange(1, 17)]
            case 4:
                other = random.choice(inputs)
                start = random.randrange(len(other) + 1)
                data[at:at] = other[start : start + random.randrange(1, 200)]
            case _:
                piece = data[at : at + random.randrange(1, 64)]
                data[at:at] = piece * random.randrange(1, 4)
    return bytes(data[:_LARGEST])
