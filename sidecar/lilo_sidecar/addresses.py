"""Addresses on the command line."""

from __future__ import annotations

import argparse


def host_and_port(text: str) -> tuple[str, int]:
    """``HOST:PORT``, with an IPv6 address in brackets. Raises `argparse.ArgumentTypeError`."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    if not colon or not host or (":" in host and not bracketed):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no HOST:PORT, such as 127.0.0.1:0 or [::1]:8080"
        )
    if not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise argparse.ArgumentTypeError(f"{port!r} is no port from 0 to 65535")
    return host, int(port)
