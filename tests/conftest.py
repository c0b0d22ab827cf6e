"""Settings for all tests, and what holds of each."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

# No time limit per example: a busy machine is no failure. A failing example prints itself. CI draws
# at random like everybody else (hypothesis would always take the same examples there).
settings.register_profile("lilo", deadline=None, print_blob=True, derandomize=False)
settings.load_profile("lilo")


@pytest.fixture(autouse=True)
def _priority_is_kept() -> Iterator[None]:
    """A test that lowers it, which cannot be undone, makes all that follow wait for whatever else
    the machine does."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    yield
    assert os.getpriority(os.PRIO_PROCESS, 0) == before
