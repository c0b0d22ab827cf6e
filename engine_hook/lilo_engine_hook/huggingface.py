"""Timing for the `Trainer` of Hugging Face's transformers.

from lilo_engine_hook.huggingface import TimingCallback

trainer = Trainer(..., callbacks=[TimingCallback("my-model")])
"""

from __future__ import annotations

import time
from copy import deepcopy
from functools import cached_property
from typing import Any, Self

try:
    from transformers import TrainerCallback
except ImportError as missing:
    raise ImportError(
        "lilo_engine_hook.huggingface needs transformers: pip install 'lilo-timing[huggingface]', "
        "or pip install transformers"
    ) from missing

from ._observers import Observers
from .loop import GPU, Command, LoopTiming, Work

FORWARD_BACKWARD = "forward_backward"
OPTIM_STEP = "optim_step"
SAVE_WEIGHTS = "save_weights"
EVALUATE = "evaluate"


class TimingCallback(TrainerCallback):  # type: ignore[misc]
    """Reports a `Trainer`'s steps as commands of one model, as an engine would.

    - ``forward_backward``: from the step's first micro-batch to the gradients being clipped. One
      command for each step, with one execution for each micro-batch of gradient accumulation.
    - ``optim_step``: the optimizer's step.
    - ``save_weights`` and ``evaluate``: these hold the training thread up, so they are executions.
      They begin where the trainer last came back from something, since no callback says more.
    - What is left, such as loading data, is ``client_s``.

    Times are those of the training thread: what it queued on a GPU and did not wait for counts
    where it waits. Never raises, never synchronises a device. In a distributed job only rank 0
    reports. One callback belongs to one `Trainer`.

    A copy (`copy.copy`, `copy.deepcopy`) has a training of its own and shares ``timing`` with the
    original, and so the connection: closing either closes it. A pickled one, in this process or
    another, opens its own at first use; an observer that it was given goes with it and must be
    picklable, which a `TimingObserver` is not: leave it out there, and set ``LILO_TIMING_SOCKET``.
    """

    def __init__(self, model_id: str, observer: Any = None) -> None:
        """``observer`` as in `LoopTiming`: by default a `TimingObserver`, which takes the
        sidecar's socket from ``LILO_TIMING_SOCKET``."""
        self._given = observer
        self.timing = LoopTiming(observer)
        self._model_id = model_id
        self._command: Command | None = None
        self._work: Work | None = None
        self._training = False
        self._evaluating = False
        self._since = 0.0
        """When the trainer last came back from something it says the end of."""

    @cached_property
    def timing(self) -> LoopTiming:
        """What the callback is made of. Only one that was unpickled has yet to open it."""
        return LoopTiming(self._given)

    @property
    def observer(self) -> Observers:
        """What is told."""
        return self.timing.observer

    def close(self) -> None:
        """Deliver what was reported, for a second at most, and stop; the process's end does it,
        too."""
        if "timing" in vars(self):  # an unpickled one that was not used has nothing to close
            self.timing.close()

    # --- copies ---------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        fresh = {"_command": None, "_work": None, "_training": False, "_evaluating": False}
        state = {**self.__dict__, **fresh}
        state.pop("timing", None)
        return state

    def __copy__(self) -> Self:
        copied = type(self).__new__(type(self))
        copied.__dict__.update(self.__getstate__(), timing=self.timing)
        return copied

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        copied = self.__copy__()
        memo[id(self)] = copied
        memo[id(self.timing)] = self.timing  # also where a subclass has it by another name
        for name, value in vars(copied).items():
            if name not in ("timing", "_given"):  # a subclass may have put anything here
                setattr(copied, name, deepcopy(value, memo))
        return copied

    # --- what the Trainer calls -----------------------------------------------------------

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._abandon()  # of a training that an exception ended
        with self.timing.accept(self._model_id):
            pass
        self._training, self._evaluating = True, False
        self._since = time.time()

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._submit(FORWARD_BACKWARD)

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._work is not None:
            self._work.finish()
            self._work.begin()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._finish()
        self._submit(OPTIM_STEP)

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._finish()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._finish()
        self._since = time.time()

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._abandon()
        self._since = time.time()

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not self._evaluating:  # an evaluation logs its metrics before it says that it ended
            self._since = time.time()

    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._evaluating = True

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._held_up_by(EVALUATE)
        self._evaluating = False

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._held_up_by(SAVE_WEIGHTS)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._abandon()
        self._training = False

    # --- what they are made of ------------------------------------------------------------

    def _submit(self, kind: str) -> None:
        """A command that runs at once."""
        self._command = self.timing.command(self._model_id, kind)
        self._command.begin()
        self._work = self.timing.execute(self._command)
        self._work.begin()

    def _finish(self) -> None:
        if self._work is not None and self._command is not None:
            self._work.finish()
            self._command.finish()
        self._work = self._command = None

    def _abandon(self) -> None:
        """The trainer left its step early: told to between two micro-batches, or by an exception
        that is long past."""
        if self._work is not None and self._command is not None:
            self._work.abandon()
            self._command.finish(failed=True)
        self._work = self._command = None

    def _held_up_by(self, kind: str) -> None:
        now = time.time()
        if self._training:
            self.observer.span([self._model_id], kind, GPU, self._since, now, n=1, ok=True)
            self.observer.state([], "idle")
        self._since = now
