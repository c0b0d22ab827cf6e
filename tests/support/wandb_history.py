"""What an offline W&B run stored, read from its own file.

W&B's service may write the file's end shortly after `run.finish()` has returned, so readers here
wait for the record that is the last one.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.sidecar import wait_until

_FILE_HEADER = 7
_BLOCK = 32 * 1024
_RECORD_HEADER = struct.Struct("<IHB")
_FULL, _LAST = 1, 4


def history(path: str | Path) -> list[dict[str, Any]]:
    """The committed rows in order, with W&B's own ``_step``, ``_runtime`` and ``_timestamp``."""
    return [
        {
            item.key or ".".join(item.nested_key): json.loads(item.value_json)
            for item in record.history.item
        }
        for record in _of_kind("history", path)
    ]


def metric_definitions(path: str | Path) -> list[tuple[str, str]]:
    """Names with their step metrics, as they were defined."""
    return [
        (record.metric.name or record.metric.glob_name, record.metric.step_metric)
        for record in _of_kind("metric", path)
    ]


def _of_kind(kind: str, path: str | Path) -> list[Any]:
    """The records of that kind of a finished run."""

    def by_kind() -> list[tuple[str, Any]]:
        return [(record.WhichOneof("record_type"), record) for record in _records(Path(path))]

    records = wait_until(by_kind, lambda known: bool(known) and known[-1][0] == "exit")
    return [record for its_kind, record in records if its_kind == kind]


def _records(path: Path) -> Iterator[Any]:
    """The file is LevelDB's log format: blocks of 32 KiB, records in fragments that cross no
    block's end."""
    from wandb.proto import wandb_internal_pb2 as protocol

    content = path.read_bytes() if path.exists() else b""  # the service makes it when it likes
    position, parts = _FILE_HEADER, b""
    while position + _RECORD_HEADER.size <= len(content):
        left = _BLOCK - position % _BLOCK
        if left < _RECORD_HEADER.size:
            position += left
            continue
        _, length, kind = _RECORD_HEADER.unpack_from(content, position)
        position += _RECORD_HEADER.size
        if position + length > len(content):
            return  # it is being written
        parts += content[position : position + length]
        position += length
        if kind in (_FULL, _LAST):
            record = protocol.Record()  # type: ignore[attr-defined]  # made at run time
            record.ParseFromString(parts)
            parts = b""
            yield record
