"""What a command weighs: told from its payload, on the hook's thread, and never more than that."""

from __future__ import annotations

import threading
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lilo_engine_hook import TimingObserver, tinker_tokens, wire
from support.operations import Operation
from support.receiver import TIMEOUT, receiver

JSON_PAYLOAD = {"data": [{"model_input": {"length": 640}}, {"model_input": {"length": 60}}]}


def test_tinker_payloads_weigh_their_tokens() -> None:
    """As objects, as parsed JSON, and where the length is a method."""
    objects = SimpleNamespace(
        data=[SimpleNamespace(model_input=SimpleNamespace(length=lambda: 5)) for _ in range(3)]
    )
    assert tinker_tokens(JSON_PAYLOAD) == 700.0
    assert tinker_tokens(objects) == 15.0
    assert tinker_tokens({"data": []}) == 0.0
    assert tinker_tokens({"adam_params": {}}) == tinker_tokens(object()) == 1.0, "no data: one"
    with pytest.raises(TypeError):
        tinker_tokens({"data": [{"model_input": {}}]})


@pytest.mark.usefixtures("patient")
def test_weight_is_told_on_the_hooks_thread(tmp_path: Path) -> None:
    """The engine's thread never runs the function; only the number crosses the socket."""
    threads = []

    def weigh(payload: Any) -> float:
        threads.append(threading.current_thread().name)
        return tinker_tokens(payload)

    with receiver(tmp_path / "timing.sock") as far:
        observer = TimingObserver(far.path, weigh=weigh)
        observer.begin(Operation("m", payload=JSON_PAYLOAD))
        observer.close()
        (event,) = far.events
        assert isinstance(event, wire.Begin)
        assert event.weight == 700.0
    assert threads == ["lilo-timing"]


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    "weight", [ValueError("no data"), SystemExit(1), None, "many", float("nan"), -1.0]
)
def test_failing_function_leaves_a_weight_of_one_and_is_counted(
    tmp_path: Path, weight: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the function does, the command is reported; failures are counted and the first
    is logged."""

    def weigh(payload: Any) -> float:
        if isinstance(weight, BaseException):
            raise weight
        return weight  # type: ignore[no-any-return]

    with receiver(tmp_path / "timing.sock") as far:
        observer = TimingObserver(far.path, weigh=weigh)
        for seq in range(3):
            observer.begin(Operation("m", seq))
        observer.close()
        assert [event.weight for event in far.events if isinstance(event, wire.Begin)] == [None] * 3
        assert far.batches[-1].unweighed == 3
        assert far.rejected == 0
    assert caplog.text.count("weighing a payload failed") == 1


def test_payload_is_let_go_when_packed(tmp_path: Path) -> None:
    """Nothing holds on to a payload once its event is packed, sidecar or no sidecar."""

    class Payload(dict[str, Any]):
        """A dictionary that can be watched."""

    payload = Payload(JSON_PAYLOAD)
    gone = threading.Event()
    weakref.finalize(payload, gone.set)
    observer = TimingObserver(tmp_path / "none.sock", weigh=tinker_tokens)
    observer.begin(Operation("m", payload=payload))
    del payload
    assert gone.wait(TIMEOUT)
    observer.close()
