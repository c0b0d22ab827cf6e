"""Programs of other projects that tests use, which come from the system's packages."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest


def tool(name: str, package: str) -> str:
    """Path of a program: of this environment's own, or of the system's. Without it the test is
    skipped with what to install; where CI is true it fails."""
    own = Path(sys.executable).parent / name
    found = str(own) if own.exists() else shutil.which(name)
    if found is None:
        reason = f"this test needs {name}: apt-get install {package}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return found
