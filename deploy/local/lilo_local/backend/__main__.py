"""``python -m lilo_local.backend --directory DIR [--http HOST:PORT]``.

Prints one JSON line when it answers. Ends at SIGTERM, SIGINT, and when its standard input
closes: so it never outlives the trainer that started it, however that one died.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

import torch
import trio

from lilo_engine_hook.device import DeviceTimer

from ..web import print_ready, serve_app, stop_on_signal
from .adapters import AdapterHost
from .server import Backend

THREADS: Final = 1
"""Cores that torch may use: the whole deployment is to live on two."""


async def _stop_with_parent(stop: trio.Event) -> None:
    async with trio.lowlevel.FdStream(0) as stdin:
        async for _ in stdin:
            pass
    stop.set()


async def serve(directory: Path, http: str) -> None:
    """Run until told to stop."""
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        await nursery.start(stop_on_signal, stop)
        nursery.start_soon(_stop_with_parent, stop)
        host = AdapterHost()
        await trio.to_thread.run_sync(host.warm_up)
        timer = DeviceTimer()
        async with trio.open_nursery() as serving:
            app = Backend(host, directory, timer).app()
            url = await serving.start(serve_app, app, http, stop)
            print_ready("lilo_local_backend_ready", url)
        nursery.cancel_scope.cancel()


def main() -> None:
    parser = argparse.ArgumentParser(prog="lilo_local.backend", description=__doc__)
    parser.add_argument("--directory", type=Path, required=True, help="where weights are written")
    parser.add_argument("--http", default="127.0.0.1:0", metavar="HOST:PORT")
    args = parser.parse_args()
    torch.set_num_threads(THREADS)
    trio.run(serve, args.directory, args.http)


if __name__ == "__main__":
    main()
