"""Messages, frames, and their packing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgpack

from .checks import ProtocolError, integer, parse_event, text, time
from .columns import plain_names
from .events import KINDS, MAX_NAME, MAX_REQUEST_ID, Event

VERSION: Final = 1

MAX_FRAME: Final = 256 * 1024
"""Bytes of one message. A receiver holds at most one frame and one read per connection."""
MAX_EVENT_BYTES: Final = 128 * 1024
"""Bytes of one packed event: two always fit into a frame, so a batch can always be closed."""
MAX_EVENTS_PER_BATCH: Final = 128
"""What a hook puts into one; a sidecar takes as many as there may be in an array. It applies a
batch in one go, and answers readers in between: more at a time would keep them waiting."""

# A decoder allocates an array as soon as it has read its header. The C decoder nests at most
# 512 deep, so a hostile frame costs at most 512 * 1024 * 8 bytes = 4 MiB, for a moment.
_MAX_ARRAY: Final = 1024
_MAX_STR_BYTES: Final = 4 * MAX_REQUEST_ID


class Role:
    """What a producer is. An ``engine`` owns models; its restart starts the numbers afresh.
    A ``backend`` (the process that owns the GPU, when it is another one) only adds to them."""

    ENGINE: Final = "engine"
    BACKEND: Final = "backend"
    ALL: Final = (ENGINE, BACKEND)


class Hello(NamedTuple):
    """Who is speaking. ``boot_id`` names one process's number sequence; ``parent_boot_id``
    is set in a forked child, whose events belong to its parent's trainer; ``started`` is
    the process's real start in Unix seconds; ``role`` is one of `Role.ALL`."""

    boot_id: str
    parent_boot_id: str | None
    pid: int
    started: float
    role: str


class Batch(NamedTuple):
    """Consecutive events, the first numbered ``first_seq``; ``dropped``, ``rejected`` and
    ``unweighed`` (commands whose weight could not be told) are the producer's totals since
    its boot."""

    first_seq: int
    dropped: int
    rejected: int
    events: tuple[Event, ...]
    unweighed: int = 0


class Ack(NamedTuple):
    """Every event numbered up to ``seq`` has been applied."""

    seq: int


class Refusal(NamedTuple):
    """The sidecar is about to close the connection, and why."""

    code: str
    message: str


Message: TypeAlias = Hello | Batch | Ack | Refusal

_NUMBERS: Final = {kind: number for number, kind in KINDS.items()}


class Packed(NamedTuple):
    """Events on their way into a batch: how many, and the msgpack array of them."""

    events: int
    array: bytes


class EventPacker:
    """Packs events. One thread; keeping it spares each event the set-up of msgpack's packer."""

    def __init__(self) -> None:
        self._packer = msgpack.Packer()

    def pack(self, event: Event) -> bytes:
        """Raises ProtocolError when a string cannot be UTF-8 or the event is longer than
        MAX_EVENT_BYTES."""
        try:
            packed: bytes = self._packer.pack((_NUMBERS[type(event)], *event))
        except UnicodeEncodeError as error:
            raise ProtocolError("text", f"a string is not valid Unicode: {error.reason}") from None
        if len(packed) > MAX_EVENT_BYTES:
            raise ProtocolError(
                "event_size", f"an event of {len(packed)} bytes is over {MAX_EVENT_BYTES}"
            )
        return packed

    def pack_plain(self, events: Sequence[tuple[object, ...]]) -> Packed | None:
        """All at once, of what `plain_names` found nothing wrong with; None if together they are
        longer than one may be by itself. Raises UnicodeEncodeError."""
        array = self._packer.pack(events)
        return Packed(len(events), array) if len(array) <= MAX_EVENT_BYTES else None


def join(packed: Sequence[bytes]) -> Packed:
    """Events that were packed one by one, together."""
    header = msgpack.Packer(autoreset=False)
    header.pack_array_header(len(packed))
    return Packed(len(packed), header.bytes() + b"".join(packed))


def encode_event(event: Event) -> bytes:
    """One event, as `EventPacker.pack` packs it."""
    return EventPacker().pack(event)


def encode_batch(
    first_seq: int, dropped: int, rejected: int, packed: Packed, unweighed: int = 0
) -> bytes:
    """A whole frame."""
    packer = msgpack.Packer(autoreset=False)
    packer.pack_array_header(6 if unweighed else 5)
    for head in ("batch", first_seq, dropped, rejected):
        packer.pack(head)
    tail = msgpack.packb(unweighed) if unweighed else b""
    return _frame(packer.bytes() + packed.array + tail)


def encode(message: Hello | Ack | Refusal) -> bytes:
    """A whole frame of one message other than a batch."""
    match message:
        case Hello():
            return _frame(msgpack.packb(("hello", VERSION, *message)))
        case Ack():
            return _frame(msgpack.packb(("ack", *message)))
        case Refusal():
            return _frame(msgpack.packb(("error", *message)))


def _frame(payload: bytes) -> bytes:
    if len(payload) > MAX_FRAME:
        raise ProtocolError("frame_size", f"a message of {len(payload)} bytes is over {MAX_FRAME}")
    return len(payload).to_bytes(4, "big") + payload


class FrameBuffer:
    """Cuts a byte stream into frames. Holds at most one incomplete frame."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the payload of every frame that ``data`` completes. Raises ProtocolError at
        a length outside 1..MAX_FRAME, before anything of that frame is kept."""
        self._buffer += data
        while len(self._buffer) >= 4:
            size = int.from_bytes(self._buffer[:4], "big")
            if not 1 <= size <= MAX_FRAME:
                raise ProtocolError(
                    "frame_size", f"a frame claims {size} bytes; allowed are 1 to {MAX_FRAME}"
                )
            if len(self._buffer) < 4 + size:
                return
            payload = bytes(self._buffer[4 : 4 + size])
            del self._buffer[: 4 + size]
            yield payload

    @property
    def pending(self) -> int:
        """Bytes of a frame that has not arrived whole."""
        return len(self._buffer)


def decode(payload: bytes) -> Message:
    """The message in one frame's payload. Raises ProtocolError, and nothing else."""
    try:
        raw = msgpack.unpackb(
            payload,
            use_list=False,
            max_array_len=_MAX_ARRAY,
            max_str_len=_MAX_STR_BYTES,
            max_map_len=0,
            max_bin_len=0,
            max_ext_len=0,
        )
    except (ValueError, RecursionError) as error:
        # msgpack's own errors, bad UTF-8 included, are all ValueErrors.
        raise ProtocolError("msgpack", f"not one valid msgpack value: {error}") from None
    if type(raw) is not tuple or not raw or type(raw[0]) is not str:
        raise ProtocolError("message", "a message is an array that begins with its name")
    name, *rest = raw
    match name:
        case "hello":
            return _parse_hello(rest)
        case "batch":
            return _parse_batch(rest)
        case "ack" if len(rest) == 1:
            return Ack(integer(rest[0], "ack"))
        case "error" if len(rest) == 2:
            return Refusal(text(rest[0], MAX_NAME, "code"), text(rest[1], 1024, "message"))
    raise ProtocolError("message", f"unknown message {name[:MAX_NAME]!r} of {len(rest)} fields")


def _parse_hello(rest: list[object]) -> Hello:
    if not rest or rest[0] != VERSION or type(rest[0]) is not int:
        spoken = repr(rest[0])[:32] if rest else "none"
        raise ProtocolError(
            "version",
            f"protocol version {spoken} is not spoken here, only {VERSION}; "
            "install the same release of lilo-timing in the trainer and the sidecar",
        )
    if len(rest) != 6:
        raise ProtocolError("message", f"a hello has 6 fields, not {len(rest)}")
    _, boot_id, parent, pid, started, role = rest
    if role not in Role.ALL:
        raise ProtocolError("role", f"role {str(role)[:MAX_NAME]!r} is none of {Role.ALL}")
    return Hello(
        text(boot_id, MAX_NAME, "boot_id"),
        None if parent is None else text(parent, MAX_NAME, "parent_boot_id"),
        integer(pid, "pid"),
        time(started, "started"),
        str(role),
    )


def _parse_batch(rest: list[object]) -> Batch:
    if not 4 <= len(rest) <= 5 or type(rest[3]) is not tuple:
        raise ProtocolError(
            "message", "a batch is first_seq, dropped, rejected, [events], and unweighed if any"
        )
    first_seq = integer(rest[0], "first_seq")
    if first_seq < 1:
        raise ProtocolError("field", "first_seq counts from 1")
    return Batch(
        first_seq,
        integer(rest[1], "dropped"),
        integer(rest[2], "rejected"),
        _parse_events(rest[3]),
        integer(rest[4], "unweighed") if len(rest) == 5 else 0,
    )


def _parse_events(raw: tuple[Any, ...]) -> tuple[Event, ...]:
    if plain_names(raw) is None:
        return tuple([_parse_event(event) for event in raw])
    # What a record's `_make` does, in half the time.
    return tuple([tuple.__new__(KINDS[event[0]], event[1:]) for event in raw])


def _parse_event(raw: object) -> Event:
    if type(raw) is not tuple or not raw or type(raw[0]) is not int:
        raise ProtocolError("event", "an event is an array that begins with its number")
    kind = KINDS.get(raw[0])
    if kind is None:
        raise ProtocolError("event", f"unknown event {raw[0]}")
    return parse_event(kind, raw[1:])
