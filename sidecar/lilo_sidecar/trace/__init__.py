"""`lilo-sidecar trace`: the last minutes of a sidecar's journals, as a trace."""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO, cast

from ..errors import StartError
from ..options_trace import STDOUT, TraceOptions
from .events import Tracer
from .journal import read_journals
from .reports import LeftOut, reports, span_of_time
from .tracks import Entry


def export(options: TraceOptions) -> int:
    """Write the trace, and on stderr what is in it; the exit status. Raises `StartError`.

    It holds the journals, 12 MiB at most, and no more of the trace than what is unfinished.
    """
    journals = read_journals(options.state_dir)
    heard = span_of_time(journals)
    if heard is None:
        raise StartError(_why_none(options.state_dir, journals))
    first, until = heard
    left_out = LeftOut()
    tracer = Tracer(until - options.last, options.model_id)
    reported = map(tracer.report, reports(journals, left_out))
    entries = itertools.chain(itertools.chain.from_iterable(reported), tracer.end(until))
    try:
        with _opened(options.output) as file:
            _write(entries, file)
    except OSError as error:
        where = "stdout" if options.output == STDOUT else options.output
        raise StartError(f"{where} cannot be written: {error.strerror}") from None
    for line in (*_summary(options, tracer, first, until), *_losses(left_out)):
        print(f"lilo-sidecar: {line}", file=sys.stderr)  # noqa: T201 - a command may
    return 0


def _write(entries: Iterable[Entry], file: TextIO) -> None:
    """A JSON object, an entry to a line."""
    file.write('{"displayTimeUnit":"ms","traceEvents":[')
    separator = "\n"
    for entry in entries:
        file.write(separator + json.dumps(entry, separators=(",", ":")))
        separator = ",\n"
    file.write("\n]}\n")


@contextlib.contextmanager
def _opened(output: str) -> Iterator[TextIO]:
    """For writing: a file that only this user may read, since it names models. It takes the place
    of one that is there once it is whole, and so is nobody's who may have made that one."""
    path = Path(output)
    if output == STDOUT or (path.exists() and not path.is_file()):  # a pipe, or a device
        where = 1 if output == STDOUT else output
        with open(where, "w", encoding="ascii", closefd=output != STDOUT) as file:
            yield file
        return
    with tempfile.NamedTemporaryFile(  # with mode 0600
        "w", encoding="ascii", dir=path.parent, prefix=f"{path.name}.", delete=False
    ) as file:
        try:
            yield cast(TextIO, file)
            file.close()
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


def _summary(options: TraceOptions, tracer: Tracer, first: float, until: float) -> Iterator[str]:
    """For people. It names no model but the one that they named."""
    reach = min(options.last, until - first)
    end = datetime.fromtimestamp(until, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    models = f"{tracer.models} model" + ("" if tracer.models == 1 else "s")
    yield (
        f"{tracer.slices} slices, {models}, {reach:.1f} s until {end} "
        f"({max(0.0, time.time() - until):.0f} s ago)"
    )
    if reach < options.last:
        yield f"the journals reach no further back than these {reach:.1f} s"
    if options.model_id is not None and not tracer.models:
        yield f"nothing of model {options.model_id!r} is in it; is that its id?"
    if tracer.left_out:
        yield (
            f"{_are(tracer.left_out, 'slice')} left out: more than could be shown at once, or "
            "ended before they began, since the clock was set"
        )


def _losses(left_out: LeftOut) -> Iterator[str]:
    """For people."""
    if left_out.records:
        yield (
            f"{_are(left_out.records, 'record')} left out of the journals: damaged, or of a time "
            "that no clock has"
        )
    if left_out.journals:
        yield f"{_are(left_out.journals, 'journal')} cut off: damaged, or of another format"


def _are(number: int, noun: str) -> str:
    return f"{number} {noun} is" if number == 1 else f"{number} {noun}s are"


def _why_none(state_dir: Path, journals: Sequence[bytes]) -> str:
    """Nothing is reported in the journals, or nothing that could be shown."""
    left_out = LeftOut()
    for _ in reports(journals, left_out):
        pass
    lost = "; ".join(_losses(left_out))
    if lost:
        return f"nothing in the journals of {state_dir} can be shown; {lost}"
    return f"no trainer has reported anything yet to the sidecar of {state_dir}"
