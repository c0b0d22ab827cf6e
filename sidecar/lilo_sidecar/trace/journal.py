"""The journals of a state directory, for looking back.

It only reads: it takes no lock, and makes, changes and removes nothing. The sidecar whose state it
is may be running, and may begin and remove journals meanwhile.
"""

from __future__ import annotations

from pathlib import Path

from ..errors import StartError
from ..state.directory import MAX_BYTES
from ..state.files import entries
from ..state.regular import regular_file


def read_journals(directory: Path) -> list[bytes]:
    """The contents of the journals there are, the oldest first: MAX_BYTES at most, the latest of
    them. Raises `StartError` where there is none, or none that can be read."""
    # A second time: all may have been exchanged between the listing and the reading.
    journals = _read(directory) or _read(directory)
    if not journals:
        raise StartError(
            f"there is no journal in {directory}: nothing was reported yet, or it cannot be "
            "written; /healthz of the sidecar says why under journal"
        )
    return journals


def _read(directory: Path) -> list[bytes]:
    try:
        found = entries(directory)
    except FileNotFoundError:
        raise StartError(
            f"there is no state directory {directory}; name the sidecar's with --socket or "
            "--state-dir"
        ) from None
    except OSError as error:
        raise _unreadable(directory, error) from None
    journals: list[bytes] = []
    left = MAX_BYTES
    for entry in reversed(found):
        if entry.kind != "journal" or entry.suffix:
            continue
        try:
            with regular_file(entry.path, follow=False) as file:
                content = file.read(left)
        except FileNotFoundError:  # it was removed meanwhile
            continue
        except OSError as error:
            if entry.regular:
                raise _unreadable(entry.path, error) from None
            continue  # none of ours
        left -= len(content)
        if content:  # an empty one is of a sidecar that went on in memory
            journals.append(content)
    return journals[::-1]


def _unreadable(path: Path, error: OSError) -> StartError:
    denied = isinstance(error, PermissionError)
    instead = "; run this as the user whose sidecar it is" if denied else ""
    return StartError(f"{path} cannot be read: {error.strerror}{instead}")
