"""What runs in a trainer's process: the observer that reports to the timing sidecar.

from lilo_engine_hook import attach

timing = attach(engine)      # beside whatever observer the engine has
"""

from ._observer import TimingObserver
from ._observers import Observers, attach, find_timing, with_timing
from ._process import default_socket_path
from ._weights import tinker_tokens

__all__ = [
    "Observers",
    "TimingObserver",
    "attach",
    "default_socket_path",
    "find_timing",
    "tinker_tokens",
    "with_timing",
]
