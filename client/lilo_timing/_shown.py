"""A caller's value in a message, whatever it is."""

from __future__ import annotations


def shown(value: object, limit: int = 80) -> str:
    """Its repr, cut to ``limit`` characters; its type's name where it has none. Never raises."""
    try:
        return repr(value)[:limit]
    except Exception:  # noqa: BLE001 - it is to be talked about, not to be trusted
        return f"a {type(value).__name__}"
