"""What crosses the Unix socket between a trainer's observer and the sidecar.

A stream of frames in each direction. One frame carries one message:

    +----------------------+---------------------------+
    | length N, u32 big-   | N bytes: one msgpack      |
    | endian, 1..MAX_FRAME | array, the message        |
    +----------------------+---------------------------+

Trainer to sidecar; the hello comes first and once per connection:

    ["hello", VERSION, boot_id, parent_boot_id | nil, pid, started, role]
    ["batch", first_seq, dropped, rejected, [event, ...]]
    ["batch", first_seq, dropped, rejected, [event, ...], unweighed]    if there are any

Sidecar to trainer:

    ["ack", seq]                 every event numbered <= seq has been applied
    ["error", code, message]     sent before the sidecar closes the connection

An event is ``[op, field, ...]`` with the fields of the record classes below, in their
order. Events are numbered from 1 within a boot id; a batch names the number of its
first event, and the others follow it. ``dropped``, ``rejected`` and ``unweighed`` are
totals since the boot.

Everything here is bounded by the constants below, and both ends check with the same
functions: the hook before it sends, so that a call it lets through is never refused;
the sidecar after it receives, because it trusts nobody.
"""

from .checks import MAX_NAMES, NameBudget, ProtocolError, parse_event
from .columns import plain_names
from .events import (
    ACTIVITY,
    BEGIN,
    FINISH,
    FORGET,
    GAUGE,
    KINDS,
    MAX_COMMANDS_PER_SPAN,
    MAX_MODEL_ID,
    MAX_MODELS_PER_SPAN,
    MAX_NAME,
    MAX_REQUEST_ID,
    REGISTER,
    SPAN,
    STATE,
    Activity,
    Begin,
    Event,
    Finish,
    Forget,
    Gauge,
    Register,
    Span,
    State,
)
from .messages import (
    MAX_EVENT_BYTES,
    MAX_EVENTS_PER_BATCH,
    MAX_FRAME,
    VERSION,
    Ack,
    Batch,
    EventPacker,
    FrameBuffer,
    Hello,
    Message,
    Packed,
    Refusal,
    Role,
    decode,
    encode,
    encode_batch,
    encode_event,
    join,
)

__all__ = [
    "ACTIVITY",
    "BEGIN",
    "FINISH",
    "FORGET",
    "GAUGE",
    "KINDS",
    "MAX_COMMANDS_PER_SPAN",
    "MAX_EVENTS_PER_BATCH",
    "MAX_EVENT_BYTES",
    "MAX_FRAME",
    "MAX_MODELS_PER_SPAN",
    "MAX_MODEL_ID",
    "MAX_NAME",
    "MAX_NAMES",
    "MAX_REQUEST_ID",
    "REGISTER",
    "SPAN",
    "STATE",
    "VERSION",
    "Ack",
    "Activity",
    "Batch",
    "Begin",
    "Event",
    "EventPacker",
    "Finish",
    "Forget",
    "FrameBuffer",
    "Gauge",
    "Hello",
    "Message",
    "NameBudget",
    "Packed",
    "ProtocolError",
    "Refusal",
    "Register",
    "Role",
    "Span",
    "State",
    "decode",
    "encode",
    "encode_batch",
    "encode_event",
    "join",
    "parse_event",
    "plain_names",
]
