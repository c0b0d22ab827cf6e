"""What the engine takes from clients."""

from __future__ import annotations

from typing import Any

import pytest

from lilo_local.engine.errors import InvalidOperationError
from lilo_local.engine.operations import MAX_TOKENS_PER_COMMAND, Limits, operation_of
from support.local_engine import data

LIMITS = Limits(vocabulary=256, context=16)


def test_a_command_knows_its_tokens_and_its_name_on_the_lane() -> None:
    """Tokens of all sequences; persisted kinds are captured on the gpu lane."""
    backward = operation_of("m", 1, "forward_backward", data(3, 16), LIMITS)
    assert (backward.request_id, backward.tokens) == ("m:1", 19)
    assert (backward.span_name, backward.persistence_lane) == ("forward_backward", None)
    saved = operation_of("m", 2, "save_weights", {"name": "a-1"}, LIMITS)
    assert (saved.span_name, saved.persistence_lane) == ("capture:save_weights", "checkpoint")


def test_the_payload_is_not_in_the_operations_repr() -> None:
    """What is logged of an operation holds no token."""
    assert "model_input" not in repr(operation_of("m", 1, "forward", data(3), LIMITS))


def with_tokens(tokens: Any, targets: Any = None) -> dict[str, Any]:
    return {
        "data": [
            {
                "model_input": {"tokens": tokens},
                "loss_fn_inputs": {"target_tokens": tokens if targets is None else targets},
            }
        ]
    }


@pytest.mark.parametrize(
    ("seq_id", "kind", "payload", "message"),
    [
        (0, "forward", data(3), "seq_id must be an integer from 1, not 0"),
        (True, "forward", data(3), "seq_id must be an integer"),
        ("1", "forward", data(3), "seq_id must be an integer"),
        (1, "accept", {}, "kind must be one of forward, forward_backward"),
        (1, None, {}, "kind must be one of"),
        (1, "optim_step", [], "payload must be an object"),
        (1, "optim_step", {"adam_params": 1}, "adam_params must be an object"),
        (1, "forward", {}, "payload.data must be a list of one sequence or more"),
        (1, "forward", {"data": []}, "payload.data must be a list"),
        (1, "forward", {"data": [1]}, r"data\[0\] needs model_input.tokens and"),
        (1, "forward", with_tokens([]), "must have 1 to 16 tokens"),
        (1, "forward", with_tokens([1] * 17), "must have 1 to 16 tokens"),
        (1, "forward", with_tokens([1, 2], [1]), "as many target_tokens as tokens"),
        (1, "forward", with_tokens([256]), "no integer from 0 to 255"),
        (1, "forward", with_tokens([-1]), "no integer from 0 to 255"),
        (1, "forward", with_tokens([1.0]), "no integer from 0 to 255"),
        (1, "forward", with_tokens([1], [True]), "no integer from 0 to 255"),
        (1, "forward", data(*[16] * 2049), f"at most {MAX_TOKENS_PER_COMMAND}: send several"),
        (1, "save_weights", {}, "payload.name must have 1 to 64 letters"),
        (1, "save_weights", {"name": "../../etc"}, "payload.name must have"),
        (1, "save_weights", {"name": "a" * 65}, "payload.name must have"),
        (1, "save_weights_for_sampler", {"name": "\u00e9"}, "payload.name must have"),
    ],
)
def test_what_could_fail_a_shared_batch_is_refused_before_it_is_queued(
    seq_id: object, kind: object, payload: object, message: str
) -> None:
    """Each with a message that says what is wrong."""
    with pytest.raises(InvalidOperationError, match=message):
        operation_of("m", seq_id, kind, payload, LIMITS)
