"""A process that trains tiny models with Hugging Face's Trainer and the timing callback:
``python -m support.huggingface_training DIRECTORY``, with LILO_TIMING_SOCKET in the environment.

Prints what it measured of itself as one JSON line, for models ``my-model`` (the documents' own
snippet), ``stopped`` (in the middle of gradient accumulation), ``raised`` (by a step of its first
training, and trained again), ``broken`` (whose observer raises), ``copied`` (by a deep copy of a
callback, made within a training of the original) and ``pickled`` (by a callback that was pickled
there).
"""

from __future__ import annotations

import contextlib
import functools
import json
import pickle
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
import transformers
from torch.utils.data import Dataset
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from lilo_engine_hook import Observers, _producer
from lilo_engine_hook.huggingface import TimingCallback
from support.snippets import snippet

STEPS = 3
MICRO_BATCHES = 2

seconds: dict[str, float] = defaultdict(float)
"""Of the trainer's own methods, by name."""


def measured(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, which adds up what it takes."""

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            return method(*args, **kwargs)
        finally:
            seconds[method.__name__] += time.perf_counter() - began

    return call


class Tokens(Dataset[dict[str, torch.Tensor]]):
    """The same eight tokens again and again."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, _: int) -> dict[str, torch.Tensor]:
        tokens = torch.arange(8)
        return {"input_ids": tokens, "labels": tokens}


class StopAtSubstep(TrainerCallback):  # type: ignore[misc]
    """Ends the training between two micro-batches of its second step."""

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        control.should_training_stop = state.global_step == 1
        return control


class RaiseOnce(TrainerCallback):  # type: ignore[misc]
    """As an error in the first step's optimizer would."""

    raised = False

    def on_pre_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        if not self.raised:
            self.raised = True
            raise RuntimeError("out of memory")


class CopyOnce(TrainerCallback):  # type: ignore[misc]
    """Copies a callback while its command runs."""

    def __init__(self, original: TimingCallback) -> None:
        self.original = original
        self.copied: Any = None
        self.pickled = b""

    def on_substep_end(self, *args: Any, **kwargs: Any) -> None:
        if self.copied is None:
            self.copied = deepcopy(self.original)
            self.pickled = pickle.dumps(self.original)


class Named(TimingCallback):
    """Has its timing by a name of its own as well."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.loop = self.timing


class Counting:
    """An observer that counts its calls by method."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def __getattr__(self, method: str) -> Any:
        return lambda *args, **attrs: self.calls.update([method])


class Broken:
    """An observer that raises from every method."""

    def __getattr__(self, method: str) -> Any:
        raise RuntimeError(f"{method} is broken")


def tiny_model() -> Any:
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=32, **shape, **heads))


def main() -> None:
    _producer.FLUSH_TIMEOUT = 20.0  # type: ignore[misc]  # a busy machine is no failure
    torch.set_num_threads(1)
    directory = Path(sys.argv[1])
    transformers.logging.set_verbosity_error()
    options: dict[str, Any] = {
        "use_cpu": True,
        "report_to": [],
        "disable_tqdm": True,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": MICRO_BATCHES,
        "max_steps": STEPS,
    }
    arguments = TrainingArguments(
        str(directory / "my-model"), **options, save_steps=2, eval_strategy="steps", eval_steps=3,
        logging_steps=1,
    )  # fmt: skip
    for name in ("training_step", "_save_checkpoint", "evaluation_loop"):
        setattr(Trainer, name, measured(getattr(Trainer, name)))
    shown = {"model": tiny_model(), "arguments": arguments, "dataset": Tokens()}
    began = time.time()
    exec(compile(snippet("OBSERVER.md", "Hugging Face's Trainer"), "OBSERVER.md", "exec"), shown)
    seconds["wall"] = time.time() - began
    of_the_first = dict(seconds)

    callbacks = shown["trainer"].callback_handler.callbacks
    (first,) = [callback for callback in callbacks if isinstance(callback, TimingCallback)]

    def train(name: str, *others: Any, observer: Any = first.observer) -> Any:
        return train_with(name, TimingCallback(name, observer), *others)

    def train_with(name: str, *callbacks: Any) -> Any:
        arguments = TrainingArguments(str(directory / name), **options, save_strategy="no")
        trainer = Trainer(tiny_model(), arguments, train_dataset=Tokens(), callbacks=[*callbacks])
        with contextlib.suppress(RuntimeError):
            trainer.train()
        return trainer

    train("stopped", StopAtSubstep())
    counting = Counting()
    train("raised", RaiseOnce(), observer=Observers(first.observer, counting)).train()
    broken = train("broken", observer=Broken()).state.global_step

    original = TimingCallback("copied")
    copying = CopyOnce(original)
    train_with("original", original, copying)
    train_with("copied", copying.copied)
    original.close()
    named = Named("named", Counting())
    unused = pickle.loads(copying.pickled)
    unused.close()
    threads = set(threading.enumerate())
    unpickled = pickle.loads(copying.pickled)
    opened = len(set(threading.enumerate()) - threads)
    unpickled._model_id = "pickled"
    train_with("pickled", unpickled)
    unpickled.close()
    first.close()
    print(
        json.dumps(
            {
                "measured": of_the_first,
                "steps": STEPS,
                "micro_batches": MICRO_BATCHES,
                "raised_calls": counting.calls,
                "broken_steps": broken,
                "copy_shares": copying.copied.timing is original.timing,
                "named_copy_shares": deepcopy(named).loop is named.timing,
                "opened_by_unpickling": opened,
                "opened_by_closing": "timing" in vars(unused),
            }
        )
    )


if __name__ == "__main__":
    main()
