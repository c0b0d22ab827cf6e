"""`lilo-sidecar top`: where the time goes, live, at a terminal.

`source` asks a sidecar, `overview` reads its answer, `picture` draws it, `live` draws it again and
again in a `terminal`; `figures` is the same for scripts.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from ..errors import StartError
from ..options_asking import AskOptions
from .source import NoAnswerError, Source

if TYPE_CHECKING:
    from rich.console import Console

_HEIGHT: Final = 10_000
"""Lines of a picture that nobody has to fit into a window."""


def run(options: AskOptions) -> int:
    """Show it; the exit status. Raises `StartError`."""
    source = Source(options)
    try:
        if options.as_json:
            from .figures import document

            with contextlib.closing(source):
                overview = source.look()
                print(document(overview, source.url))  # noqa: T201 - a command may
        elif options.once:
            _show_once(source)
        else:
            _show_live(source, options.interval)
    except NoAnswerError as error:
        raise StartError(str(error)) from None
    return 0


def _show_once(source: Source) -> None:
    console = _console()
    from .glyphs import glyphs_for
    from .picture import picture

    size = console.size.width, _HEIGHT
    with contextlib.closing(source):
        drawn = picture(source.look(), source.url, size, glyphs_for(console.encoding))
    console.print(drawn, soft_wrap=True)


def _show_live(source: Source, interval: float) -> None:
    console = _console()
    from .live import show

    if not console.is_terminal or console.is_dumb_terminal:
        raise StartError(
            "top draws on a terminal that can move its cursor, which stdout is not; "
            "add --once for one picture, or --json for the figures"
        )
    show(source, interval, console)


def _console() -> Console:
    """Raises `StartError` where rich is missing: before anything that imports it."""
    try:
        from rich.console import Console
    except ModuleNotFoundError:
        raise StartError(
            "top draws with the package rich, which is missing here; install it with: "
            "pip install 'lilo-timing[sidecar]'"
        ) from None
    return Console(markup=False, emoji=False, highlight=False)
