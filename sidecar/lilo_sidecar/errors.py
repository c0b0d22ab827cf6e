"""The sidecar's own errors."""

from __future__ import annotations


class StartError(Exception):
    """The daemon cannot start as it was asked to. The message is one line for the operator:
    what, why, what to do."""
