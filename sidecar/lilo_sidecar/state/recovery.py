"""How the state of a sidecar that ended is had again: its snapshot, and its journal done again."""

from __future__ import annotations

import contextlib
import logging
import secrets
from typing import Final

from lilo_engine_hook import wire

from ..core.critical_path import CriticalPath
from ..core.cursor import Cursor
from ..faults import described
from .directory import StateDirectory
from .journal import (
    Applied,
    Asked,
    BrokenJournalError,
    Connected,
    Disconnected,
    Record,
    TornJournalError,
    is_dated,
    read_records,
)
from .snapshot import OtherVersionError, SnapshotError, load

_SET_ASIDE: Final = "the state is set aside, and the figures begin anew: %s"

_log = logging.getLogger("lilo_sidecar.state.journal")


def recover(directory: StateDirectory, now: float) -> CriticalPath:
    """Go on from the state in a directory, which is opened if it can be; or begin with none. What
    is of another version, or damaged, is set aside. Never raises for what it finds there."""
    core = None
    try:
        directory.open()
    except OSError as error:
        _log.debug("no state is read: %s", error)  # whoever writes there next says so
    else:
        core = _recovered(directory, now)
    return CriticalPath(secrets.token_hex(4)) if core is None else core


def _recovered(directory: StateDirectory, now: float) -> CriticalPath | None:
    try:
        generation = directory.latest()
        if generation is None:
            return None
        if not generation.journal:
            _log.warning(
                "the sidecar that ended did not write down the last that it counted; "
                "the figures begin anew"
            )
            return None
        core = load(generation.snapshot)
        done = replay(core, generation.journal)
        core.disconnect_all(now)
    except OtherVersionError as error:
        _log.info(_SET_ASIDE, error)
    except SnapshotError as error:
        _log.warning(_SET_ASIDE, error)
    except OSError as error:
        _log.warning(_SET_ASIDE, f"it cannot be read: {error.strerror}")
    except Exception as error:  # noqa: BLE001 - whatever is there must not keep the sidecar down
        _log.warning(_SET_ASIDE, f"it holds a broken state: {described(error)}")
    else:
        _log.info("going on from the journal: a snapshot and %d records", done)
        return core
    directory.set_aside()
    return None


def replay(core: CriticalPath, journal: bytes) -> int:
    """Do again what a journal says, up to its last whole record; how many there are. Where more
    is cut off than what nobody was answered, readers hear of it."""
    done = 0
    try:
        for record in read_records(journal):
            if not is_dated(record):  # it would let go of all models that were forgotten
                raise BrokenJournalError("the next one is of a time that no clock has")
            _do(core, record)
            done += 1
    except BrokenJournalError as error:
        _log.warning("the journal is cut off after %d records: %s", done, error)
        if not isinstance(error, TornJournalError):
            core.cut_off(secrets.token_hex(4))
    return done


def _do(core: CriticalPath, record: Record) -> None:
    try:
        match record:
            case Connected(now, hello):
                message = wire.decode(hello)
                assert isinstance(message, wire.Hello)  # noqa: S101 - nothing else is recorded
                with contextlib.suppress(wire.ProtocolError):  # it was refused then, too
                    core.connect(message, now)
            case Applied(now, boot_id, packed):
                batch = wire.decode(packed)
                assert isinstance(batch, wire.Batch)  # noqa: S101 - likewise
                core.apply(boot_id, batch, now)
            case Disconnected(now, boot_id):
                core.disconnect(boot_id, now)
            case Asked(now, model_id, reset, reader, ack):
                cursor = None if ack is None else Cursor.parse(ack)
                core.timing(model_id, reset=reset, now=now, reader=reader, ack=cursor)
    except Exception as error:  # noqa: BLE001 - one record must not keep the others out
        kind = type(record).__name__
        _log.error(
            "a record (%s) of the journal failed and is left out: %s", kind, described(error)
        )
