"""Commands as the engine and its observers know them, checked before they are queued."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from .errors import InvalidOperationError

MAX_TOKENS_PER_COMMAND: Final = 32_768
"""About four seconds of the lane on one core: longer, and one client holds up all the others."""
MAX_NAME: Final = 64
"""Characters of the name that weights are saved under."""


class Kind(enum.StrEnum):
    """What a command does. ``ACCEPT`` is the engine's own: it creates the model."""

    ACCEPT = "accept"
    FORWARD = "forward"
    FORWARD_BACKWARD = "forward_backward"
    OPTIM_STEP = "optim_step"
    SAVE_WEIGHTS = "save_weights"
    SAVE_WEIGHTS_FOR_SAMPLER = "save_weights_for_sampler"


PERSISTENCE_LANES: Final = {
    Kind.SAVE_WEIGHTS: "checkpoint",
    Kind.SAVE_WEIGHTS_FOR_SAMPLER: "sampler",
}
"""Kinds whose weights are captured on the gpu lane and written on a lane of their own."""
_WITH_DATA: Final = (Kind.FORWARD, Kind.FORWARD_BACKWARD)


@dataclass(frozen=True, slots=True)
class Limits:
    """What the backend's model takes."""

    vocabulary: int
    """Tokens are from 0 to one less than this."""
    context: int
    """Tokens of the longest sequence."""


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """One command. ``payload`` is as the client sent it, and nothing else of it goes further."""

    model_id: str
    seq_id: int
    kind: Kind
    payload: Mapping[str, Any] = field(default_factory=dict, repr=False)
    tokens: int = 0
    """Of its data; what the batch's budget counts."""

    @property
    def request_id(self) -> str:
        return f"{self.model_id}:{self.seq_id}"

    @property
    def persistence_lane(self) -> str | None:
        return PERSISTENCE_LANES.get(self.kind)

    @property
    def span_name(self) -> str:
        """What the gpu lane does for it."""
        return f"capture:{self.kind}" if self.persistence_lane else self.kind.value


def operation_of(
    model_id: str, seq_id: object, kind: object, payload: object, limits: Limits
) -> Operation:
    """A client's command, complete and within the limits, so that it cannot fail a batch that it
    shares. Raises `InvalidOperationError`."""
    if isinstance(seq_id, bool) or not isinstance(seq_id, int) or seq_id < 1:
        raise InvalidOperationError(f"seq_id must be an integer from 1, not {seq_id!r}")
    allowed = [each.value for each in Kind if each is not Kind.ACCEPT]
    if kind not in allowed:
        raise InvalidOperationError(f"kind must be one of {', '.join(allowed)}, not {kind!r}")
    if not isinstance(payload, dict):
        raise InvalidOperationError("payload must be an object")
    checked = Kind(kind)
    tokens = _check_data(payload.get("data"), limits) if checked in _WITH_DATA else 0
    if checked in PERSISTENCE_LANES:
        _check_name(payload.get("name"))
    if checked is Kind.OPTIM_STEP and not isinstance(payload.get("adam_params", {}), dict):
        raise InvalidOperationError("payload.adam_params must be an object")
    return Operation(model_id, seq_id, checked, payload, tokens)


def payload_tokens(payload: Any) -> float:
    """What a command weighs within a batch: the tokens of its data, or one without any."""
    data = payload.get("data", ())
    return float(sum(len(datum["model_input"]["tokens"]) for datum in data) or 1)


def _check_data(data: object, limits: Limits) -> int:
    if not isinstance(data, list) or not data:
        raise InvalidOperationError("payload.data must be a list of one sequence or more")
    total = 0
    for index, datum in enumerate(data):
        try:
            tokens = datum["model_input"]["tokens"]
            targets = datum["loss_fn_inputs"]["target_tokens"]
        except (KeyError, TypeError, IndexError) as error:
            raise InvalidOperationError(
                f"payload.data[{index}] needs model_input.tokens and loss_fn_inputs.target_tokens"
            ) from error
        if not isinstance(tokens, list) or not 1 <= len(tokens) <= limits.context:
            raise InvalidOperationError(
                f"payload.data[{index}] must have 1 to {limits.context} tokens"
            )
        if not isinstance(targets, list) or len(targets) != len(tokens):
            raise InvalidOperationError(
                f"payload.data[{index}] must have as many target_tokens as tokens"
            )
        for token in (*tokens, *targets):
            if type(token) is not int or not 0 <= token < limits.vocabulary:
                raise InvalidOperationError(
                    f"payload.data[{index}] has a token that is no integer from 0 to "
                    f"{limits.vocabulary - 1}"
                )
        total += len(tokens)
    if total > MAX_TOKENS_PER_COMMAND:
        raise InvalidOperationError(
            f"{total} tokens in one command; at most {MAX_TOKENS_PER_COMMAND}: send several"
        )
    return total


def _check_name(name: object) -> None:
    ok = isinstance(name, str) and len(name) <= MAX_NAME and name.replace("-", "a").isalnum()
    if not ok or not str(name).isascii():
        raise InvalidOperationError(
            f"payload.name must have 1 to {MAX_NAME} letters, digits and hyphens, not {name!r}"
        )
