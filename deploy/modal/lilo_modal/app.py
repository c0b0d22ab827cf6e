"""The app: ``modal deploy -m lilo_modal.app``. To be copied and changed: the trainer, its image and
its GPU are stand-ins, in the first half; what the timing needs is in the second."""

# No `from __future__ import annotations`: `modal.parameter` wants types, not their names.

import contextlib
import sys
from pathlib import Path
from typing import Final

import modal

from lilo_modal.container import TimedTrainer
from lilo_modal.published import Entry, publish, withdraw

GPU: Final = "H100"
TRAINER_PORT: Final = 8000


def trainer_command(token_file: Path) -> list[str]:
    """What starts the trainer; here that of deploy/local, which takes its token from the file."""
    return [
        *(sys.executable, "-m", "lilo_local.trainer", "--http", f"0.0.0.0:{TRAINER_PORT}"),
        *("--token-file", str(token_file), "--directory", str(token_file.parent)),
    ]


# --- the timing ---------------------------------------------------------------------------

TIMING_PORT: Final = 9411
DAY: Final = 24 * 60 * 60
"""Seconds: as long as Modal lets one call take."""
DISTRIBUTION: Final = ("pyproject.toml", "README.md", "engine_hook", "sidecar", "client")
"""What the packages are installed from. Installed, not added by `add_local_python_source`, which
would take the Python files and leave everything else behind."""

app = modal.App("lilo-trainer")

engines = modal.Dict.from_name("lilo-engines", create_if_missing=True)
"""Each engine's `Entry`, by the engine's name."""

image = modal.Image.debian_slim(python_version="3.11").pip_install("torch>=2.4", "numpy>=1.26")
if modal.is_local():  # in the container there is no checkout, and the image is built already
    checkout = Path(__file__).resolve().parents[3]
    for name in DISTRIBUTION:
        source, target = checkout / name, f"/src/{name}"
        if not source.exists():  # Modal would say so in the middle of the deployment
            raise FileNotFoundError(f"{source} is not there; deploy from a whole checkout")
        if source.is_dir():
            image = image.add_local_dir(source, target, copy=True, ignore=["**/__pycache__"])
        else:
            image = image.add_local_file(source, target, copy=True)
    image = image.run_commands("pip install '/src[sidecar,control-plane]'")
    image = image.add_local_python_source("lilo_modal", "lilo_local")


@app.cls(
    image=image,
    gpu=GPU,
    timeout=DAY,
    max_containers=1,  # of each name: two would publish over each other
    single_use_containers=True,  # a trainer that ended is not started again by `run`
    retries=modal.Retries(max_retries=10, backoff_coefficient=1.0, initial_delay=1.0),
)
class Engine:
    """One GPU container: the trainer, its sidecar, and their entry in `engines`."""

    name: str = modal.parameter(default="engine-0")

    @modal.enter()
    def start(self) -> None:
        """Start both, and publish them once the trainer serves."""
        ending = self._ending = contextlib.ExitStack()
        try:
            self._trainer = TimedTrainer(
                trainer_command, timing_port=TIMING_PORT, trainer_port=TRAINER_PORT
            )
            ending.callback(self._trainer.drain)
            self._trainer.wait_until_serving()
            # Tunnels are open to the whole internet: hence the token.
            trainer = ending.enter_context(modal.forward(TRAINER_PORT))
            timing = ending.enter_context(modal.forward(TIMING_PORT))
            entry = Entry(trainer.url, timing.url, self._trainer.token)
            ending.callback(withdraw, engines, self.name, entry)
            publish(engines, self.name, entry)
            ending.callback(self._trainer.drain)  # first of all: it can be asked until then
        except BaseException:
            ending.close()
            raise

    @modal.method()
    def run(self) -> None:
        """Stay for as long as the trainer runs. A trainer that ends by itself has failed: Modal
        then tries again."""
        raise RuntimeError(f"the trainer ended with status {self._trainer.wait()}")

    @modal.exit()
    def stop(self) -> None:
        """At the end, also of a container that is preempted: the trainer finishes what it runs, and
        reports it; then the tunnels close, and what was published goes."""
        self._ending.close()


@app.local_entrypoint()
def main(name: str = "engine-0") -> None:
    """``modal run -m lilo_modal.app``: one engine, until Ctrl-C."""
    Engine(name=name).run.remote()  # type: ignore[call-arg] # modal.parameter: mypy sees no field
