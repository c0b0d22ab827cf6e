"""From the token lists of several tenants' commands to one padded batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class TrainingSequence:
    """Tokens and, for each, the one that should follow it."""

    tokens: Sequence[int]
    targets: Sequence[int]


@dataclass(frozen=True, slots=True)
class Work:
    """One command's sequences, all for one adapter."""

    adapter: str
    sequences: Sequence[TrainingSequence]

    @property
    def tokens(self) -> int:
        return sum(len(sequence.tokens) for sequence in self.sequences)


@dataclass(frozen=True, slots=True)
class Batch:
    """All sequences of several commands, padded on the right to the longest.

    Attention is causal, so what pads a sequence never reaches the tokens before it, and its
    weight is zero: a sequence's gradient is the same in any company.
    """

    tokens: Tensor
    """[batch, time]."""
    targets: Tensor
    weights: Tensor
    """[batch, time]: one over the tokens of the command, zero in the padding. So a command's loss
    is its mean per token, however much the others bring."""
    owner: Tensor
    """[batch]: which command the sequence is of."""

    @classmethod
    def of(cls, commands: Sequence[Work]) -> Batch:
        """Pad and stack. The only loop over commands: it fills the arrays on the host."""
        count = sum(len(work.sequences) for work in commands)
        longest = max(len(s.tokens) for work in commands for s in work.sequences)
        tokens = torch.zeros(count, longest, dtype=torch.long)
        targets = torch.zeros_like(tokens)
        weights = torch.zeros(count, longest)
        owner = torch.zeros(count, dtype=torch.long)
        row = 0
        for index, work in enumerate(commands):
            for sequence in work.sequences:
                length = len(sequence.tokens)
                tokens[row, :length] = torch.tensor(sequence.tokens)
                targets[row, :length] = torch.tensor(sequence.targets)
                weights[row, :length] = 1.0 / work.tokens
                owner[row] = index
                row += 1
        return cls(tokens, targets, weights, owner)
