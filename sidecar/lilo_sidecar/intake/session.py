"""One producer's conversation, without I/O: bytes in, bytes to answer out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from lilo_engine_hook import wire

from ..core.timing import Timing
from ..state.recorder import Recorder

_MAX_REASON: Final = 1024
"""Characters of a refusal's message, as the wire format bounds them."""


class Session:
    """Passes what one connection says to the core, in order, and acknowledges what was applied.

    ``before_hello`` is called before a new producer reaches the core; ``on_trainer_ended``
    with the last aggregate of every trainer that it replaces.
    """

    def __init__(
        self,
        core: Recorder,
        before_hello: Callable[[], None],
        on_trainer_ended: Callable[[Timing], None],
    ) -> None:
        self.hello: wire.Hello | None = None
        """Who speaks; None until the hello was accepted."""
        self.answers = bytearray()
        """To be sent to the producer; whoever sends it, removes it."""
        self._core = core
        self._before_hello = before_hello
        self._on_trainer_ended = on_trainer_ended
        self._frames = wire.FrameBuffer()
        self._names = wire.NameBudget()

    def receive(self, data: bytes) -> None:
        """Take in the next bytes. Raises `wire.ProtocolError`; what came before the offence
        has been applied and its acknowledgement is among the answers."""
        for payload in self._frames.feed(data):
            self._hear(wire.decode(payload), payload)

    def refuse(self, code: str, reason: str) -> None:
        """Say why the connection is about to be closed."""
        self.answers += wire.encode(wire.Refusal(code[: wire.MAX_NAME], reason[:_MAX_REASON]))

    def end(self) -> None:
        """The connection is over. Raises `wire.ProtocolError` when it ended within a message."""
        if self.hello is not None:
            self._core.disconnect(self.hello.boot_id)
            self.hello = None
        if self._frames.pending:
            raise wire.ProtocolError(
                "truncated", f"the stream ended {self._frames.pending} bytes into a message"
            )

    def _hear(self, message: wire.Message, payload: bytes) -> None:
        match message:
            case wire.Hello() if self.hello is None:
                self._greet(message, payload)
            case wire.Hello():
                raise wire.ProtocolError("order", "a second hello; there is one per connection")
            case wire.Batch() if self.hello is not None:
                self._apply(self.hello.boot_id, message, payload)
            case wire.Batch():
                raise wire.ProtocolError("order", "a batch before the hello")
            case _:
                raise wire.ProtocolError("message", "only the sidecar sends such a message")

    def _greet(self, hello: wire.Hello, payload: bytes) -> None:
        self._before_hello()
        ended = self._core.connect(hello, payload)
        self.hello = hello  # whatever comes next, the core is to hear of its end
        for timing in ended:
            self._on_trainer_ended(timing)
        self._acknowledge(self._core.acked(hello.boot_id))

    def _apply(self, boot_id: str, batch: wire.Batch, payload: bytes) -> None:
        # All names before any event: a batch is applied whole or refused whole.
        for event in batch.events:
            self._names.spend(event)
        self._acknowledge(self._core.apply(boot_id, batch, payload))

    def _acknowledge(self, seq: int) -> None:
        self.answers += wire.encode(wire.Ack(seq))
