"""The model and its adapters: isolation of tenants, and that it learns."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lilo_local.backend.adapters import AdamParameters, AdapterHost, BackendError
from lilo_local.backend.model import ModelShape
from lilo_local.backend.sequences import TrainingSequence, Work
from lilo_local.tenant.data import Sampler, part
from support.local_engine import TINY


def host_with(*adapters: str, shape: ModelShape = TINY) -> AdapterHost:
    host = AdapterHost(shape)
    for adapter in adapters:
        host.create(adapter)
    return host


def work(adapter: str, *lengths: int, seed: int = 0) -> Work:
    numbers = torch.Generator().manual_seed(seed)
    sequences = []
    for length in lengths:
        drawn = torch.randint(0, 256, (length + 1,), generator=numbers).tolist()
        sequences.append(TrainingSequence(drawn[:-1], drawn[1:]))
    return Work(adapter, sequences)


def trained(host: AdapterHost, mine: Work, *others: Work, steps: int = 3) -> None:
    for _ in range(steps):
        host.forward_backward([mine, *others])
        host.optim_step(mine.adapter, AdamParameters(learning_rate=0.01))


def weights(host: AdapterHost, adapter: str) -> dict[str, torch.Tensor]:
    taken: Any = host.snapshot(adapter, with_optimizer=False)["weights"]
    return dict(taken)


def assert_close(mine: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    for name, tensor in mine.items():
        torch.testing.assert_close(tensor, other[name], rtol=1e-4, atol=1e-6, msg=name)


def test_gradients_do_not_depend_on_who_shares_the_batch() -> None:
    """A tenant's loss and gradients are the same alone as in a batch with others, whose sequences
    are longer, shorter and more."""
    mine = work("a", 9, 5)
    alone = host_with("a")
    trained(alone, mine)
    (loss_alone,) = alone.forward_backward([mine])
    shared = host_with("x", "a", "y")
    trained(shared, mine)
    others = [work("x", 16, 16, 3, seed=1), work("y", 2, seed=2)]
    _, loss_shared, _ = shared.forward_backward([others[0], mine, others[1]])
    assert loss_shared.loss == pytest.approx(loss_alone.loss, rel=1e-5)
    assert any(gradient.abs().max() > 1e-3 for gradient in alone.gradients("a").values())
    assert_close(alone.gradients("a"), shared.gradients("a"))


def test_a_poisoned_neighbour_poisons_nobody() -> None:
    """A tenant whose weights became NaN does not reach the gradients of those in its batch."""
    host = host_with("a", "bad")
    for view in host._adapters["bad"].views.values():
        view.fill_(float("nan"))
    results = host.forward_backward([work("bad", 8), work("a", 8)])
    assert results[0].loss != results[0].loss
    assert all(gradient.isfinite().all() for gradient in host.gradients("a").values())


def test_training_beside_others_is_training_alone() -> None:
    """Weights after several steps are the same alone and in company: the optimizers keep moments
    and step counts of their own."""
    mine = work("a", 9, 5)
    alone = host_with("a")
    trained(alone, mine)
    shared = host_with("x", "a")
    trained(shared, work("x", 12, seed=1), steps=2)
    trained(shared, mine, work("x", 12, seed=1))
    assert_close(weights(alone, "a"), weights(shared, "a"))
    assert (shared.steps("x"), shared.steps("a")) == (2, 3)


def test_a_step_touches_one_adapter() -> None:
    """An optimizer step leaves the weights and gradients of every other adapter as they were."""
    host = host_with("a", "b")
    host.forward_backward([work("a", 8), work("b", 8, seed=1)])
    before, gradients = weights(host, "b"), host.gradients("b")
    host.optim_step("a", AdamParameters())
    assert all(torch.equal(before[name], tensor) for name, tensor in weights(host, "b").items())
    assert all(torch.equal(gradients[name], g) for name, g in host.gradients("b").items())
    assert not any(gradient.any() for gradient in host.gradients("a").values())


def test_gradients_add_up_until_the_step() -> None:
    """Two backward passes before a step give the sum of their gradients."""
    first, second = work("a", 8), work("a", 6, seed=1)
    host = host_with("a")
    host.forward_backward([first])
    one = host.gradients("a")
    host.forward_backward([second])
    both = host.gradients("a")
    other = host_with("a")
    other.forward_backward([second])
    two = other.gradients("a")
    assert_close(both, {name: one[name] + two[name] for name in both})


class CountOperations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def test_the_pass_has_no_loop_over_tenants() -> None:
    """Four sequences of four tenants take exactly as many tensor operations as four of one."""
    host = host_with("a", "b", "c", "d")
    counts = []
    for commands in ([work("a", 8, 8, 8, 8)], [work(name, 8) for name in "abcd"]):
        with CountOperations() as operations:
            host.forward_backward(commands)
        counts.append(operations.count)
    assert counts[0] == counts[1]


def test_loss_falls_on_real_text() -> None:
    """Thirty steps on the standard library's sources bring the loss well below the 5.5 that
    knowing nothing of bytes costs."""
    shape = ModelShape(context=64, width=64, layers=1, heads=2, rank=8, slots=2)
    host = host_with("a", shape=shape)
    text = Sampler(part(0, 3), length=64, seed=0)
    losses = []
    for _ in range(30):
        sequences = [
            TrainingSequence(d["model_input"]["tokens"], d["loss_fn_inputs"]["target_tokens"])
            for d in text.draw(4)
        ]
        (result,) = host.forward_backward([Work("a", sequences)])
        host.optim_step("a", AdamParameters(learning_rate=0.01))
        losses.append(result.loss)
    assert losses[0] > 5
    assert sum(losses[-5:]) / 5 < 3.7


def test_forward_leaves_no_gradient() -> None:
    """An evaluation gives the loss of a training pass and accumulates nothing."""
    host = host_with("a")
    (evaluated,) = host.forward([work("a", 8)])
    assert not any(gradient.any() for gradient in host.gradients("a").values())
    with pytest.raises(BackendError, match="no gradient; call forward_backward first"):
        host.optim_step("a", AdamParameters())
    (result,) = host.forward_backward([work("a", 8)])
    assert evaluated.loss == pytest.approx(result.loss, rel=1e-5)


def test_slots_are_bounded_and_come_back_fresh() -> None:
    """There are as many adapters as slots; one that was freed starts like new."""
    host = host_with("a", "b", "c", "d")
    new = weights(host, "d")
    with pytest.raises(BackendError, match="all 4 adapter slots are taken; unload a model"):
        host.create("e")
    trained(host, work("d", 8))
    host.forward_backward([work("d", 8)])
    host.delete("d")
    with pytest.raises(BackendError, match="there is no adapter d"):
        host.steps("d")
    host.create("d")
    assert all(torch.equal(new[name], tensor) for name, tensor in weights(host, "d").items())
    assert not any(gradient.any() for gradient in host.gradients("d").values())
    assert host.steps("d") == 0
    with pytest.raises(BackendError, match="there is an adapter d already"):
        host.create("d")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"lr": 1e-3}, "unknown optimizer parameters: lr"),
        ({"learning_rate": "high"}, "learning_rate must be a number, not 'high'"),
        ({"learning_rate": -1}, "learning_rate must be at least 0"),
        ({"beta2": 1.0}, "beta2 must be at least 0 and below 1.0"),
        ({"eps": float("nan")}, "eps must be at least 0"),
    ],
)
def test_optimizer_parameters_are_checked(values: dict[str, object], message: str) -> None:
    """A parameter that Adam cannot use is refused, and the message names it."""
    with pytest.raises(BackendError, match=message):
        AdamParameters.of(values)
