"""A producer for tests of the core: builds events and numbers them, without a socket."""

from __future__ import annotations

from collections.abc import Sequence

from lilo_engine_hook import wire
from lilo_sidecar.core.critical_path import CriticalPath
from lilo_sidecar.core.timing import Timing


def hello(
    boot: str = "boot", *, parent: str | None = None, started: float = 0.0, role: str = "engine"
) -> wire.Hello:
    """What a producer says first."""
    return wire.Hello(boot, parent, 1, started, role)


def begin(model: str, seq: int, t: float, kind: str = "forward_backward") -> wire.Begin:
    """A submission of the model's command number ``seq``."""
    return wire.Begin(t, model, f"{model}:{seq}", seq, kind, None)


def finish(model: str, seq: int, t: float = 0.0) -> wire.Finish:
    """The end of that command."""
    return wire.Finish(t, model, f"{model}:{seq}")


def span(
    models: Sequence[str],
    t0: float,
    t1: float,
    name: str = "forward_backward",
    *,
    ids: Sequence[str] | None = None,
    seqs: Sequence[int] | None = None,
    n: int | None = None,
    ok: bool | None = None,
    lane: str = "gpu",
) -> wire.Span:
    """Work of a lane."""
    return wire.Span(
        tuple(models),
        name,
        lane,
        t0,
        t1,
        None if ids is None else tuple(ids),
        None if seqs is None else tuple(seqs),
        n,
        ok,
        None,
    )


class Feed:
    """One connected producer of a core."""

    def __init__(self, core: CriticalPath, who: wire.Hello | None = None, now: float = 0.0) -> None:
        self.core = core
        self.who = who or hello()
        self.ended = core.connect(self.who, now)
        self.sent = 0

    def __call__(self, *events: wire.Event, dropped: int = 0, rejected: int = 0) -> int:
        """Apply the events as one batch; the number acknowledged."""
        batch = wire.Batch(self.sent + 1, dropped, rejected, events)
        self.sent += len(events)
        return self.core.apply(self.who.boot_id, batch, 0.0)

    def timing(self, model: str | None = None, *, reset: bool = False) -> Timing:
        """The core's answer."""
        return self.core.timing(model, reset=reset, now=0.0)
