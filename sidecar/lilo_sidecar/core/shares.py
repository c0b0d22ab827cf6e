"""Whose work a batch was: its wall time divided among its commands."""

from __future__ import annotations

from collections.abc import Mapping

from lilo_engine_hook import wire

from .model import Command


def execution_shares(
    span: wire.Span,
    models: tuple[str, ...],
    request_ids: tuple[str, ...],
    pending: Mapping[str, Command],
) -> dict[str, float]:
    """Each model's part of a batch; the parts add up to one.

    A command weighs what the span's ``tokens`` say, else its own weight, else one; one that is
    not known any more weighs what the others do on average. Where no command is named, or none
    is of these models, or all weigh nothing, the models share alike.
    """
    if len(models) == 1:
        return {models[0]: 1.0}
    tokens = span.tokens if span.tokens and len(span.tokens) == len(request_ids) else None
    weights = dict.fromkeys(models, 0.0)
    known = [_weight(pending[i]) for i in request_ids if i in pending]
    usual = sum(known) / len(known) if known else 1.0
    for at, request_id in enumerate(request_ids):
        command = pending.get(request_id)
        model = command.model if command is not None else request_id.rpartition(":")[0]
        if model not in weights:
            continue
        if tokens is not None:
            weights[model] += tokens[at]
        else:
            weights[model] += usual if command is None else _weight(command)
    total = sum(weights.values())
    if not total:
        return dict.fromkeys(models, 1.0 / len(models))
    return {model: weight / total for model, weight in weights.items()}


def _weight(command: Command) -> float:
    return 1.0 if command.weight is None else command.weight
