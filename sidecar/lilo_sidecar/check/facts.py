"""What `lilo-sidecar check` knows of a deployment before it judges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..asking import AskError, Trouble
from ..core.delivery import Delivery
from ..socket_probe import SocketProbe


@dataclass(frozen=True, slots=True)
class Health:
    """What `/healthz` said, as far as it is judged."""

    version: str
    uptime_s: float
    connected: bool
    """Whether a trainer's engine is."""
    producers: int
    """Processes connected: engines and backends."""
    last_heard_age_s: float | None
    """None if no trainer ever was heard."""
    lanes: Mapping[str, tuple[str, float]]
    """By lane that works now: the operation, and seconds in it."""
    journal_reason: str | None
    """Why the journal is off; None while it is written."""
    faults: int
    """Of the sidecar's own: in events, connections and HTTP requests."""
    refused_connections: int
    refused_peers: int
    protocol_errors: int
    refused_readers: int

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Health:
        """Read an answer. Raises `AskError` for one that is no sidecar's."""
        try:
            trainer, journal = content["trainer"], content["journal"]
            ingest, http = content["ingest"], content["http"] or {}
            age = trainer["last_heard_age_s"]
            reason = None if journal["writing"] else str(journal["reason"])
            return cls(
                version=str(content["version"]),
                uptime_s=float(content["uptime_s"]),
                connected=bool(trainer["connected"]),
                producers=int(content["producers"]),
                last_heard_age_s=None if age is None else float(age),
                lanes={
                    str(name): (str(lane["operation"]), float(lane["for_s"]))
                    for name, lane in content["lanes"].items()
                },
                journal_reason=reason,
                faults=int(content["faults"]) + int(ingest["faults"]) + int(http.get("faults", 0)),
                refused_connections=int(ingest["refused_connections"]),
                refused_peers=int(ingest["refused_peers"]),
                protocol_errors=int(ingest["protocol_errors"]),
                refused_readers=int(http.get("refused", 0)),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise AskError(Trouble.FOREIGN, "its /healthz is not a sidecar's") from None


@dataclass(frozen=True, slots=True)
class Figures:
    """What became of the trainer's reports, since it started."""

    delivery: Delivery
    executed: bool
    """Whether any operation has run."""

    @classmethod
    def of(cls, timing: Mapping[str, Any]) -> Figures:
        """Read the aggregate's timing answer. Raises `AskError` for one that is no sidecar's."""
        try:
            counts = {name: int(timing["delivery"][name]) for name in Delivery._fields}
            executed = any(name.endswith(".execute") for name in timing["phases"])
            return cls(Delivery(**counts), executed)
        except (KeyError, TypeError, ValueError):
            raise AskError(Trouble.FOREIGN, "its timing is not a sidecar's") from None


@dataclass(frozen=True, slots=True)
class Facts:
    """All that is judged. What is None was not to be had, or not asked for."""

    version: str
    """Of this command."""
    uid: int
    """Who asks."""
    socket: SocketProbe | None
    url: str | None
    """Where the sidecar was asked."""
    announced: str | None = None
    """The URL in the file beside the socket."""
    runs: tuple[Path, ...] = ()
    """Sockets of running `lilo-sidecar run`, where no other was named and none is found."""
    token_file: Path | None = None
    trouble: AskError | None = None
    """Why something could not be asked."""
    health: Health | None = None
    figures: Figures | None = None

    @property
    def answered(self) -> bool:
        """Whether everything could be asked."""
        return self.health is not None and self.figures is not None
