"""Who may read over HTTP, as far as it is decided at the start: this machine, or whoever holds
the token."""

from __future__ import annotations

import ipaddress
import logging
import os
import stat
from pathlib import Path
from typing import Final

from .errors import StartError
from .state.regular import regular_file

MAX_TOKEN: Final = 4096
"""Bytes of a token file: a header of this size still passes every proxy's default limit."""
_OTHERS_READ: Final = stat.S_IRGRP | stat.S_IROTH

_log = logging.getLogger("lilo_sidecar")


def read_token(path: Path) -> str:
    """The token in a file, without the space around it. Raises `StartError`, which never
    quotes the file's content."""
    try:
        with regular_file(path, follow=True) as file:  # secrets are mounted as links
            status = os.fstat(file.fileno())
            data = file.read(MAX_TOKEN + 1)
    except OSError as error:
        raise StartError(f"cannot read the token file {path}: {error.strerror}") from None
    if len(data) > MAX_TOKEN:
        raise StartError(f"the token file {path} is longer than {MAX_TOKEN} bytes")
    token = data.strip()
    if not token:
        raise StartError(
            f"the token file {path} is empty; put a long random word into it, "
            "for example the output of: openssl rand -hex 32"
        )
    if not all(0x21 <= byte <= 0x7E for byte in token):
        raise StartError(
            f"the token file {path} holds characters that a header cannot carry; "
            "a token is one word of printable ASCII"
        )
    if status.st_uid == os.geteuid() and status.st_mode & _OTHERS_READ:
        _log.warning(
            "other users may read the token file %s (mode %04o); chmod 600 it",
            path,
            stat.S_IMODE(status.st_mode),
        )
    return token.decode("ascii")


def check_exposure(address: str, *, token: bool) -> None:
    """Raise `StartError` for an address that others can reach when there is no token."""
    if not token and not ipaddress.ip_address(address).is_loopback:
        raise StartError(
            f"refusing to serve HTTP on {address} without a token, since other machines could "
            "read every client's figures; add --token-file FILE, or bind 127.0.0.1"
        )
