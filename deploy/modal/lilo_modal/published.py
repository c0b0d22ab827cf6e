"""Where each engine and its sidecar are, for the control plane: published by the engine's
container, looked up by `engine_for`. Nothing of Modal: a `modal.Dict` will do, and so will a dict.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from lilo_timing import SidecarEndpoint


class Registry(Protocol):
    """A mapping that containers share."""

    def __setitem__(self, key: str, value: dict[str, str], /) -> None: ...
    def get(self, key: str, /) -> Any: ...
    def pop(self, key: str, default: Any, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class Entry:
    """What is published of one engine. The token is in no repr."""

    trainer_url: str
    """Where the trainer takes requests."""
    timing_url: str
    """Where its sidecar answers."""
    token: str = field(repr=False)
    """The sidecar's, and the stand-in trainer's."""


def publish(registry: Registry, engine: str, entry: Entry) -> None:
    """Let the control plane know; an entry that an earlier container left is replaced."""
    registry[engine] = asdict(entry)  # plain, so that a reader needs no class of ours


def withdraw(registry: Registry, engine: str, entry: Entry) -> None:
    """Take the entry back, unless the engine's next container has replaced it already."""
    if registry.get(engine) == asdict(entry):
        registry.pop(engine, None)


def engine_for(
    engine_of: Callable[[str], str | None], look_up: Callable[[str], Awaitable[Any]]
) -> Callable[[str], Awaitable[SidecarEndpoint]]:
    """The function that `timing_routes` wants.

    ``engine_of(model_id)`` names the engine that the control plane placed the model on, or None;
    ``look_up`` gives what is published of an engine, or None, as ``Dict.get.aio`` does. It is asked
    each time: a container that replaces a preempted one has another URL and another token.
    A model whose engine is not there, and which has gone with it, is a LookupError.
    """

    async def endpoint(model_id: str) -> SidecarEndpoint:
        engine = engine_of(model_id)
        found = None if engine is None else await look_up(engine)
        if found is None:
            raise LookupError(model_id)
        return SidecarEndpoint(found["timing_url"], found["token"])

    return endpoint
