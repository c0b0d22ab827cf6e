"""The adapters of all tenants on one frozen model: training them, and taking their weights."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from .model import ModelShape, MultiLoraTransformer
from .sequences import Batch, TrainingSequence, Work


class BackendError(Exception):
    """An operation that the backend cannot do; the message says what to do instead."""


@dataclass(frozen=True, slots=True)
class AdamParameters:
    """Of one optimizer step, as the client chose them."""

    learning_rate: float = 5e-3
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.0

    @classmethod
    def of(cls, values: Mapping[str, object]) -> AdamParameters:
        """From a request. Raises `BackendError` for an unknown name or a value out of range."""
        unknown = values.keys() - cls.__dataclass_fields__.keys()
        if unknown:
            raise BackendError(f"unknown optimizer parameters: {', '.join(sorted(unknown))}")
        for name, value in values.items():
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise BackendError(f"{name} must be a number, not {value!r}")
            ceiling = 1.0 if name in ("beta1", "beta2") else math.inf
            if not 0 <= value < ceiling:
                raise BackendError(f"{name} must be at least 0 and below {ceiling}, not {value}")
        return cls(**{name: float(value) for name, value in values.items()})  # type: ignore[arg-type]


@dataclass(slots=True)
class _Adapter:
    slot: int
    views: dict[str, Tensor]
    optimizer: torch.optim.AdamW
    """Its own: it counts this adapter's steps and keeps this adapter's moments."""
    accumulated: int = 0
    """Backward passes since the last optimizer step."""


@dataclass(frozen=True, slots=True)
class Result:
    """Of one command in a batch."""

    loss: float
    """Mean per token."""
    tokens: int


class AdapterHost:
    """Not thread-safe: whoever calls it lets one operation finish before the next."""

    def __init__(self, shape: ModelShape | None = None) -> None:
        self.shape = shape or ModelShape()
        self._model = MultiLoraTransformer(self.shape)
        self._projections = self._model.projections()
        self._adapters: dict[str, _Adapter] = {}
        self._free = list(reversed(range(self.shape.slots)))

    def warm_up(self) -> None:
        """One step for nobody. The first one loads a good part of torch, for seconds: nobody's
        first command should look that slow."""
        self.create("warm-up")
        self.forward_backward([Work("warm-up", [TrainingSequence([0], [0])])])
        self.optim_step("warm-up", AdamParameters())
        self.delete("warm-up")

    def create(self, adapter: str) -> None:
        """A fresh adapter; the same name always begins with the same weights."""
        if adapter in self._adapters:
            raise BackendError(f"there is an adapter {adapter} already")
        if not self._free:
            raise BackendError(f"all {self.shape.slots} adapter slots are taken; unload a model")
        slot = self._free.pop()
        generator = torch.Generator().manual_seed(zlib.crc32(adapter.encode()))
        for projection in self._projections.values():
            projection.reset(slot, generator)
        views = {
            f"{name}.{part}": view
            for name, projection in self._projections.items()
            for part, view in projection.views(slot).items()
        }
        self._adapters[adapter] = _Adapter(slot, views, torch.optim.AdamW(views.values()))

    def forward_backward(self, commands: Sequence[Work]) -> list[Result]:
        """One forward and one backward pass for all the commands together. Gradients add up in
        each command's own adapter, until its next `optim_step`."""
        batch, losses = self._losses(commands)
        losses.sum().backward()  # type: ignore[no-untyped-call]
        for work in commands:
            self._adapters[work.adapter].accumulated += 1
        return self._results(commands, batch, losses)

    @torch.no_grad()
    def forward(self, commands: Sequence[Work]) -> list[Result]:
        """The losses alone."""
        return self._results(commands, *self._losses(commands))

    def optim_step(self, adapter: str, parameters: AdamParameters) -> int:
        """Apply and clear what the adapter has accumulated; the number of its steps so far."""
        found = self._adapter(adapter)
        if not found.accumulated:
            raise BackendError(f"{adapter} has no gradient; call forward_backward first")
        (group,) = found.optimizer.param_groups
        group["lr"] = parameters.learning_rate
        group["betas"] = (parameters.beta1, parameters.beta2)
        group["eps"] = parameters.eps
        group["weight_decay"] = parameters.weight_decay
        found.optimizer.step()
        for projection in self._projections.values():
            projection.clear_gradient(found.slot)
        found.accumulated = 0
        return self.steps(adapter)

    def steps(self, adapter: str) -> int:
        """Optimizer steps the adapter has taken."""
        found = self._adapter(adapter)
        state = found.optimizer.state.get(next(iter(found.views.values())))
        return int(state["step"].item()) if state else 0

    def gradients(self, adapter: str) -> dict[str, Tensor]:
        """A copy of what the adapter has accumulated, by projection."""
        views = self._adapter(adapter).views
        return {name: v.grad.clone() for name, v in views.items() if v.grad is not None}

    def snapshot(self, adapter: str, *, with_optimizer: bool) -> dict[str, object]:
        """A copy of the adapter's weights on the host (and of its optimizer's state), which the
        adapter may outrun while it is being written."""
        found = self._adapter(adapter)
        taken: dict[str, object] = {
            "weights": {name: view.clone() for name, view in found.views.items()}
        }
        if with_optimizer:
            state = found.optimizer.state_dict()["state"]
            taken["optimizer"] = {
                index: {name: value.clone() for name, value in moments.items()}
                for index, moments in state.items()
            }
        return taken

    def delete(self, adapter: str) -> None:
        """Free the adapter's slot."""
        found = self._adapter(adapter)
        del self._adapters[adapter]
        self._free.append(found.slot)

    def _losses(self, commands: Sequence[Work]) -> tuple[Batch, Tensor]:
        batch = Batch.of(commands)
        slots = torch.tensor([self._adapter(work.adapter).slot for work in commands])
        logits = self._model(batch.tokens, slots[batch.owner])
        losses = functional.cross_entropy(
            logits.flatten(0, 1), batch.targets.flatten(), reduction="none"
        ).view_as(batch.weights)
        return batch, (losses * batch.weights).sum(1)

    def _results(self, commands: Sequence[Work], batch: Batch, losses: Tensor) -> list[Result]:
        by_command = torch.zeros(len(commands)).index_add(0, batch.owner, losses.detach())
        return [
            Result(loss, work.tokens)
            for loss, work in zip(by_command.tolist(), commands, strict=True)
        ]

    def _adapter(self, adapter: str) -> _Adapter:
        found = self._adapters.get(adapter)
        if found is None:
            raise BackendError(f"there is no adapter {adapter}")
        return found
