"""Which commands run next."""

from __future__ import annotations

import pytest

from lilo_local.engine.errors import BusyError, ConflictError
from lilo_local.engine.operations import Kind, Operation
from lilo_local.engine.scheduler import MAX_QUEUED, Scheduler


def scheduler(*models: str, budget: int = 100) -> Scheduler:
    """One whose models are created."""
    made = Scheduler(budget)
    for model in models:
        made.add(Operation(model, 0, Kind.ACCEPT))
        assert ids(made) == [f"{model}:0"]
    return made


def command(
    model: str, seq: int, kind: Kind = Kind.FORWARD_BACKWARD, tokens: int = 10
) -> Operation:
    return Operation(model, seq, kind, {}, tokens)


def submit(made: Scheduler, *operations: Operation) -> None:
    for operation in operations:
        made.submit(operation)


def ids(made: Scheduler, *busy: str) -> list[str]:
    return [operation.request_id for operation in made.next_batch(set(busy))]


def test_a_models_commands_run_in_order_whatever_order_they_come_in() -> None:
    """A command that arrives early is held until all before it ran."""
    made = scheduler("a")
    submit(made, command("a", 3), command("a", 2))
    assert ids(made) == []
    submit(made, command("a", 1))
    assert [ids(made) for _ in range(4)] == [["a:1"], ["a:2"], ["a:3"], []]


def test_nothing_runs_before_the_model_is_created() -> None:
    """Commands may be submitted at once; the creation is first."""
    made = Scheduler(100)
    made.add(Operation("a", 0, Kind.ACCEPT))
    submit(made, command("a", 1))
    assert [ids(made) for _ in range(3)] == [["a:0"], ["a:1"], []]


def test_models_take_turns() -> None:
    """A client with a long queue does not hold up one with a short one."""
    made = scheduler("a", "b")
    submit(made, *(command("a", seq, Kind.OPTIM_STEP) for seq in (1, 2, 3)))
    submit(made, command("b", 1, Kind.OPTIM_STEP))
    assert [ids(made) for _ in range(4)] == [["a:1"], ["b:1"], ["a:2"], ["a:3"]]


def test_forward_backward_of_different_models_is_coalesced_under_the_budget() -> None:
    """As many as fit, one of each model; who does not fit is first next time."""
    made = scheduler("a", "b", "c", "d", budget=25)
    submit(made, *(command(model, 1) for model in "abc"), command("d", 1, tokens=5))
    submit(made, command("a", 2))
    assert ids(made) == ["a:1", "b:1", "d:1"]
    assert ids(made) == ["c:1", "a:2"]


def test_a_batch_of_exactly_the_budget_fits_and_one_token_more_does_not() -> None:
    """The bound itself."""
    made = scheduler("a", "b", budget=20)
    submit(made, command("a", 1), command("b", 1), command("a", 2), command("b", 2, tokens=11))
    assert [ids(made) for _ in range(3)] == [["a:1", "b:1"], ["a:2"], ["b:2"]]


def test_a_command_over_the_budget_runs_alone() -> None:
    """It would never run otherwise."""
    made = scheduler("a", "b", budget=20)
    submit(made, command("a", 1, tokens=50), command("b", 1))
    assert [ids(made) for _ in range(2)] == [["a:1"], ["b:1"]]


@pytest.mark.parametrize("kind", [Kind.FORWARD, Kind.OPTIM_STEP, Kind.SAVE_WEIGHTS])
def test_other_kinds_are_not_coalesced(kind: Kind) -> None:
    """Neither with themselves nor with a forward_backward."""
    made = scheduler("a", "b", "c")
    submit(made, command("a", 1, kind), command("b", 1, kind), command("c", 1))
    assert [ids(made) for _ in range(3)] == [["a:1"], ["b:1"], ["c:1"]]


def test_a_busy_persistence_lane_holds_only_what_needs_it() -> None:
    """Others run meanwhile, and the model keeps its order."""
    made = scheduler("a", "b")
    submit(made, command("a", 1, Kind.SAVE_WEIGHTS), command("a", 2))
    submit(made, command("b", 1, Kind.SAVE_WEIGHTS_FOR_SAMPLER))
    assert [ids(made, "checkpoint") for _ in range(2)] == [["b:1"], []]
    assert [ids(made) for _ in range(2)] == [["a:1"], ["a:2"]]


def test_a_model_queues_up_to_the_bound() -> None:
    """One more is refused, says so, and fits once something ran."""
    made = scheduler("a")
    submit(made, *(command("a", seq) for seq in range(1, MAX_QUEUED + 1)))
    late = command("a", MAX_QUEUED + 1)
    with pytest.raises(BusyError, match=f"at most {MAX_QUEUED} wait; poll for results before"):
        made.submit(late)
    assert ids(made) == ["a:1"]
    made.submit(late)


def test_a_used_sequence_id_is_refused() -> None:
    """A command that ran does not run again; the message names what comes next."""
    made = scheduler("a")
    submit(made, command("a", 1))
    assert ids(made) == ["a:1"]
    with pytest.raises(ConflictError, match=r"a:1 ran before .* the next seq_id is 2"):
        made.submit(command("a", 1))


def test_removing_a_model_gives_back_what_had_not_started() -> None:
    """In order; and the model is gone from the rotation."""
    made = scheduler("a", "b")
    submit(made, command("a", 2), command("a", 1), command("b", 1))
    assert [operation.seq_id for operation in made.remove("a")] == [1, 2]
    assert made.models == ["b"]
    assert ids(made) == ["b:1"]
    assert made.remove("a") == []
