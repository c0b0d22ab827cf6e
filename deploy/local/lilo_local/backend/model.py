"""A small decoder-only transformer over bytes, frozen, with adapters on every projection.

Its base weights are random, from a fixed seed: no pretrained ones are at hand on a machine
without access to a model hub. So the output projection has an adapter too: a random base has
nothing to say that the others alone could bring out.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from .lora import LoraLinear


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes. The defaults train a step of a thousand tokens in about 0.1 s on one core."""

    vocabulary: int = 256
    """One token per byte."""
    context: int = 128
    """Tokens of the longest sequence."""
    width: int = 128
    layers: int = 2
    heads: int = 4
    rank: int = 8
    slots: int = 32
    """Adapters that fit at once."""
    seed: int = 20240601


class Block(nn.Module):
    """Causal attention and a feed-forward part, each behind a norm and added to its input."""

    def __init__(self, shape: ModelShape, generator: torch.Generator) -> None:
        super().__init__()
        width = shape.width
        self.heads = shape.heads

        def projection(inputs: int, outputs: int) -> LoraLinear:
            return LoraLinear(
                inputs, outputs, slots=shape.slots, rank=shape.rank, generator=generator
            )

        self.query = projection(width, width)
        self.key = projection(width, width)
        self.value = projection(width, width)
        self.out = projection(width, width)
        self.widen = projection(width, 4 * width)
        self.narrow = projection(4 * width, width)

    def forward(self, x: Tensor, slots: Tensor) -> Tensor:
        """``x`` [batch, time, width]."""
        normed = _norm(x)
        query, key, value = (
            projection(normed, slots).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for projection in (self.query, self.key, self.value)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2), slots)
        widened = functional.gelu(self.widen(_norm(x), slots))
        result: Tensor = x + self.narrow(widened, slots)
        return result


class MultiLoraTransformer(nn.Module):
    """Next-byte logits for a batch in which each sequence has an adapter of its own."""

    embedding: Tensor
    positions: Tensor

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.shape = shape
        generator = torch.Generator().manual_seed(shape.seed)
        self.register_buffer(
            "embedding", torch.randn(shape.vocabulary, shape.width, generator=generator)
        )
        self.register_buffer(
            "positions", 0.3 * torch.randn(shape.context, shape.width, generator=generator)
        )
        self.blocks = nn.ModuleList(Block(shape, generator) for _ in range(shape.layers))
        self.head = LoraLinear(
            shape.width, shape.vocabulary, slots=shape.slots, rank=shape.rank, generator=generator
        )

    def forward(self, tokens: Tensor, slots: Tensor) -> Tensor:
        """``tokens`` [batch, time] and the adapter of each sequence, ``slots`` [batch]; logits
        [batch, time, vocabulary]. A sequence's logits depend on nothing but itself, its past
        and its adapter."""
        x = self.embedding[tokens] + self.positions[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x, slots)
        logits: Tensor = self.head(_norm(x), slots)
        return logits

    def projections(self) -> dict[str, LoraLinear]:
        """Every adapted projection by its name."""
        return {name: m for name, m in self.named_modules() if isinstance(m, LoraLinear)}


def _norm(x: Tensor) -> Tensor:
    return functional.rms_norm(x, x.shape[-1:])
