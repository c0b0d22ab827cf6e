"""What the log may say of a fault of the sidecar's own."""

from __future__ import annotations

import traceback
from pathlib import PurePath


def described(error: BaseException) -> str:
    """The kind of the exception and where it came from, without its text: that may quote what a
    producer sent, such as a model's id."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    places = [f"{PurePath(frame.filename).name}:{frame.lineno}" for frame in reversed(frames)]
    return f"{type(error).__name__} at {' from '.join(places) or 'an unknown place'}"
