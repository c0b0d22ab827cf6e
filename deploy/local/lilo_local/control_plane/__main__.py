"""``python -m lilo_local.control_plane --config FILE [--http HOST:PORT]``.

The configuration is a JSON object, readable by its owner only, since it holds keys:

    {"tenants": {"<name>": "<API key>"}, "operator_key": "<API key>",
     "trainers": {"<name>": {"url": ..., "sidecar": ..., "token": ...}}}

Prints one JSON line when it takes requests; SIGTERM or SIGINT ends it.
"""

from __future__ import annotations

import argparse
import json
import logging
from pathlib import Path
from typing import Any, Final

import httpx
import trio

from lilo_timing import SidecarEndpoint, TimingPoller

from ..web import print_ready, serve_app, stop_on_signal
from .app import control_plane_app
from .callers import Caller
from .fleet import Fleet, Trainer
from .relay import Relay

POLL_INTERVAL: Final = 1.0
"""Seconds between two looks at a trainer's aggregate: models here live for seconds."""


async def serve(config: dict[str, Any], http: str) -> None:
    """Run until told to stop."""
    callers = {key: Caller(name) for name, key in config["tenants"].items()}
    callers[config["operator_key"]] = Caller("operator", operator=True)
    trainers = {
        name: Trainer(
            name,
            trainer["url"],
            SidecarEndpoint(trainer["sidecar"], trainer["token"]),
            trainer["token"],
        )
        for name, trainer in config["trainers"].items()
    }
    endpoints = {name: trainer.sidecar for name, trainer in trainers.items()}
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        await nursery.start(stop_on_signal, stop)
        async with (
            httpx.AsyncClient() as client,
            TimingPoller(endpoints, interval=POLL_INTERVAL) as poller,
        ):
            app = control_plane_app(Fleet(trainers, poller), Relay(client), callers)
            async with trio.open_nursery() as serving:
                url = await serving.start(serve_app, app, http, stop)
                print_ready("lilo_local_control_plane_ready", url)
        nursery.cancel_scope.cancel()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="lilo_local.control_plane", description=__doc__)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--http", default="127.0.0.1:0", metavar="HOST:PORT")
    args = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    trio.run(serve, json.loads(args.config.read_text()), args.http)


if __name__ == "__main__":
    main()
