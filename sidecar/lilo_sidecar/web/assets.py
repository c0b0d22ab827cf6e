"""The files of the page, as they are in the package: read once, served from memory."""

from __future__ import annotations

from importlib import resources
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

PATHS: Final = {
    "/": "index.html",
    **{
        f"/page/{name}": name
        for name in (
            "answer.js",
            "bars.js",
            "charts.js",
            "colours.js",
            "details.js",
            "elements.js",
            "format.js",
            "icon.svg",
            "kept.js",
            "lanes.js",
            "models.js",
            "notices.js",
            "page.css",
            "page.js",
            "parts.js",
            "vendor/uPlot.iife.min.js",
            "vendor/uPlot.min.css",
        )
    },
}
"""By path: the file. They hold no figures, and whoever may connect may have them."""
_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
HEADERS: Final = {
    # Nothing but this server's own files and answers, whatever a model may be called.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # After an upgrade of the sidecar nobody has the page of before.
    "Cache-Control": "no-cache",
}


_PAGE: Final = resources.files(__package__) / "page"
_BODIES: Final = {name: _PAGE.joinpath(*name.split("/")).read_bytes() for name in PATHS.values()}
"""Read with the module: a sidecar may give up the right to read where it is installed."""


def routes() -> list[Route]:
    """One for each file. Bodies are plain and whole: a file's response is sent in pieces, which
    hypercorn and starlette do not agree about."""
    return [_route(path, name) for path, name in PATHS.items()]


def _route(path: str, name: str) -> Route:
    body = _BODIES[name]
    kind = _TYPES[name.rpartition(".")[2]]

    async def serve(request: Request) -> Response:
        return Response(body, media_type=kind, headers=HEADERS)

    return Route(path, serve, methods=["GET"], name=name)
