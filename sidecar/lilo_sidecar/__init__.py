"""The timing sidecar: a daemon beside a trainer that adds up what the trainer's observer reports.

The pure core is here to be imported; the daemon itself is the `lilo-sidecar` command, whose
packages (trio, hypercorn, starlette) this import does not load.
"""

from .core.critical_path import CriticalPath
from .core.timing import AGGREGATE, Health, Timing

__all__ = ["AGGREGATE", "CriticalPath", "Health", "Timing"]
