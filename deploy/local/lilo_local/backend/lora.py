"""A frozen linear map with one low-rank adapter per slot, all of them applied in one product."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

LORA_ALPHA: Final = 16.0
"""The delta is scaled by alpha / rank, so that a learning rate means the same at any rank."""


class LoraLinear(nn.Module):
    """``weight @ x`` plus, for each sequence of the batch, the delta of the adapter it belongs to.

    The adapters of all tenants live in two tensors, ``down`` [slots, rank, inputs] and ``up``
    [slots, outputs, rank]. A batch gathers its own by slot and applies them with two batched
    products, however many tenants share it.
    """

    weight: Tensor

    def __init__(
        self, inputs: int, outputs: int, *, slots: int, rank: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        weight = torch.randn(outputs, inputs, generator=generator) / inputs**0.5
        self.register_buffer("weight", weight)
        self.down = nn.Parameter(torch.zeros(slots, rank, inputs))
        self.up = nn.Parameter(torch.zeros(slots, outputs, rank))
        self.scale = LORA_ALPHA / rank
        # There from the start: backward() then adds to them in place, so that the optimizers can
        # hold views of them.
        self.down.grad = torch.zeros_like(self.down)
        self.up.grad = torch.zeros_like(self.up)

    def forward(self, x: Tensor, slots: Tensor) -> Tensor:
        """``x`` [batch, time, inputs], ``slots`` [batch]: the adapter of each sequence."""
        down = self.down.index_select(0, slots)
        up = self.up.index_select(0, slots)
        delta = torch.bmm(torch.bmm(x, down.mT), up.mT)
        return functional.linear(x, self.weight) + self.scale * delta

    @torch.no_grad()
    def reset(self, slot: int, generator: torch.Generator) -> None:
        """A fresh adapter in ``slot``: its delta is zero, and trains from the first step."""
        inputs = self.down.shape[2]
        self.down[slot] = torch.randn(self.down.shape[1:], generator=generator) / inputs**0.5
        self.up[slot] = 0.0
        self.clear_gradient(slot)

    def clear_gradient(self, slot: int) -> None:
        """Forget what ``slot`` has accumulated."""
        for parameter in (self.down, self.up):
            assert parameter.grad is not None
            parameter.grad[slot] = 0.0

    def views(self, slot: int) -> dict[str, Tensor]:
        """The adapter in ``slot`` as leaf tensors that share memory with the stacked ones, with
        their gradients: what an optimizer of its own works on."""
        views = {}
        for name, parameter in (("down", self.down), ("up", self.up)):
            assert parameter.grad is not None
            view = parameter.detach()[slot]
            view.grad = parameter.grad[slot]
            views[name] = view
        return views
