"""``lilo-sidecar run -- python -m lilo_local.trainer --directory DIR --token-file FILE``.

Prints one JSON line when it takes requests. SIGTERM or SIGINT ends it: what runs is finished,
what waits fails, and what the observer has not sent yet is delivered.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
from pathlib import Path
from typing import Any, Final

import trio

from lilo_engine_hook import Observers

from ..engine import Engine
from ..engine.engine import TOKEN_BUDGET
from ..web import print_ready, serve_app, stop_on_signal
from .api import trainer_app
from .backend_process import running_backend

DRAIN_TIMEOUT: Final = 5.0
"""Seconds that what runs at the end may take: a batch takes less than one."""


async def serve(args: argparse.Namespace) -> None:
    """Run until told to stop."""
    token = args.token_file.read_text("ascii").strip()
    observer = Observers(_make(args.observer), _otlp())
    stop = trio.Event()
    starting = trio.CancelScope()
    async with trio.open_nursery() as outer:
        await outer.start(stop_on_signal, stop)
        outer.start_soon(_cancel_at, stop, starting)
        async with running_backend(args.directory, starting) as backend:
            if backend is not None:
                engine = Engine(
                    backend,
                    await backend.limits(),
                    observer=observer,
                    token_budget=args.token_budget,
                    scheduler_delay=args.scheduler_delay,
                )
                try:
                    engine.timing.backend_ready()
                    await _serve_engine(engine, token, args.http, stop)
                finally:
                    engine.observer.close()
        outer.cancel_scope.cancel()


async def _serve_engine(engine: Engine, token: str, http: str, stop: trio.Event) -> None:
    async with trio.open_nursery() as lanes:
        lanes.start_soon(engine.run)
        async with trio.open_nursery() as serving:
            url = await serving.start(serve_app, trainer_app(engine, token), http, stop)
            engine.timing.serving_ready()
            print_ready("lilo_local_trainer_ready", url)
            await stop.wait()
            engine.stop()
        with trio.move_on_after(DRAIN_TIMEOUT):
            await engine.drained()
        lanes.cancel_scope.cancel()


async def _cancel_at(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


def _otlp() -> Any:
    """Exports traces, too, where the environment says whom to."""
    if not os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        return None
    from lilo_engine_hook.otlp import OtlpObserver  # loads the OpenTelemetry SDK

    return OtlpObserver()


def _make(factory: str | None) -> Any:
    """What ``module:name`` makes when it is called."""
    if factory is None:
        return None
    module, _, name = factory.partition(":")
    return getattr(importlib.import_module(module), name)()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="lilo_local.trainer", description=__doc__)
    parser.add_argument("--directory", type=Path, required=True, help="where weights are written")
    parser.add_argument(
        "--token-file", type=Path, required=True, help="holds the bearer token requests must carry"
    )
    parser.add_argument("--http", default="127.0.0.1:0", metavar="HOST:PORT")
    parser.add_argument("--token-budget", type=int, default=TOKEN_BUDGET, metavar="TOKENS")
    parser.add_argument("--scheduler-delay", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument(
        "--observer",
        metavar="MODULE:FACTORY",
        help="makes one more observer of the engine, beside the timing observer",
    )
    args = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    trio.run(serve, args)


if __name__ == "__main__":
    main()
