"""What a training loop calls."""

from __future__ import annotations

import math
import operator
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, SupportsFloat, SupportsIndex

from ._process import current_process
from ._request import timing_request
from ._runs import SeveralRunsError, live_run
from ._shown import shown
from ._statistics import ReportingStatistics, counters
from ._worker import Admission, Job
from .errors import InvalidCallError

if TYPE_CHECKING:
    import httpx

DEFAULT_TIMEOUT: Final = 10.0
MAX_STEP: Final = 2**53
"""Whole numbers up to here are exact in JSON and in W&B."""
_MARGIN: Final = 0.5
"""Seconds that a caller who waits gives a report beyond its timeout: for what is done besides
asking, and so that one that just fails is told as that."""


def log_critical_path(
    model_id: str,
    *,
    step: SupportsIndex | SupportsFloat | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    reset: bool = True,
    prefix: str = "lilo",
    timeout: float = DEFAULT_TIMEOUT,
    transport: httpx.BaseTransport | None = None,
    background: bool = True,
    run: Any = None,
    reader: str | None = None,
) -> Mapping[str, float] | None:
    """Report where a model's time went since the last report: once per training step.

    Goes to ``run``, or to the one live W&B run; without one, a JSON line on stdout. In a run,
    metrics join the row that the loop commits next (``commit=False``), against their own x-axis
    ``<prefix>/step``, which is ``step``, or the row's number without one. If several reports
    come between two commits, the later carry the figures of the earlier.

    Returns None at once and does everything else on a background thread; with
    ``background=False`` waits, for ``timeout`` and half a second, and returns the metrics, or None
    if there are none by then (the report is made all the same, when its turn comes). Never raises:
    failures are counted (`reporting_statistics`), and logged as a warning once per kind. If a
    report of the same model to the same run is in flight, this one is not made, and the next
    covers its time. So it does for one that failed, or that the run refused.

    Intervals are those of a ``reader`` that this process has for each run (and one without), so
    nobody else's reading takes anything from them. A loop that names its reader goes on, after a
    restart, where the last interval that it acknowledged ended; the name is for one process at a
    time.

    ``base_url`` and ``api_key`` default to ``TINKER_BASE_URL`` and ``TINKER_API_KEY``;
    ``reset=False`` leaves the interval open; ``timeout`` is in seconds; ``transport`` is an
    httpx transport to use in place of the network. Two models in one run need a ``prefix`` each.
    """
    try:
        return _log(
            model_id,
            step=step,
            prefix=prefix,
            background=background,
            run=run,
            base_url=base_url,
            api_key=api_key,
            reset=reset,
            timeout=timeout,
            transport=transport,
            reader=reader,
        )
    except InvalidCallError as error:
        counters.count("invalid")
        counters.tell(type(error).__name__, f"timing is not logged: {error}")
    except SeveralRunsError as error:
        counters.count("ambiguous")
        counters.tell("runs", f"timing is not logged: {error}; pass the one to log to as run=")
    except Exception as error:  # noqa: BLE001 - a training loop never fails for its timing
        counters.count("invalid")
        counters.tell("unexpected", f"timing is not logged: {shown(error, 200)}", error)
    return None


def critical_path_metrics(
    model_id: str,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    reset: bool = True,
    prefix: str = "lilo",
    timeout: float = DEFAULT_TIMEOUT,
    transport: httpx.BaseTransport | None = None,
    reader: str | None = None,
) -> dict[str, float]:
    """The metrics themselves, for a logger of any kind. Parameters as in `log_critical_path`,
    with which it shares no reader unless told to. An interval counts as received once it is
    returned; the next one covers whatever was not.

    Blocks, while another thread asks for the same model, too, for up to ``timeout``. Raises a
    `TimingError`: see `lilo_timing.errors`.
    """
    request = timing_request(
        model_id,
        base_url=base_url,
        api_key=api_key,
        reset=reset,
        timeout=timeout,
        transport=transport,
        reader=reader,
    )
    prefix = _checked_prefix(prefix)
    from ._metrics import flatten

    process = current_process()
    with process.reporter().positions.reading(request, request.reader or process.reader) as answer:
        return flatten(answer, prefix)


def flush_critical_path(timeout: float = DEFAULT_TIMEOUT) -> bool:
    """Wait for the reports in flight, at most ``timeout`` seconds; whether all are done. Call
    it before `run.finish()`, so that the last report is in the run. Never raises."""
    try:
        return current_process().worker.flush(max(0.0, float(timeout)))
    except Exception as error:  # noqa: BLE001 - a training loop never fails for its timing
        counters.tell("wait", f"reports were not waited for: {shown(error, 200)}", error)
        return False


def reporting_statistics() -> ReportingStatistics:
    """What became of this process's reports so far."""
    return counters.snapshot()


def _log(
    model_id: str,
    *,
    step: Any,
    prefix: str,
    background: bool,
    run: Any,
    **arguments: Any,
) -> Mapping[str, float] | None:
    request = timing_request(model_id, **arguments)
    prefix = _checked_prefix(prefix)
    if run is None:
        run = live_run()
    elif not callable(getattr(run, "log", None)):
        raise InvalidCallError(f"run is {shown(run)}; pass a W&B run")
    step = _plain(step)
    process = current_process()  # a fork between here and the end must not mix two processes
    made: list[Mapping[str, float] | None] = []
    job = Job(
        # The run by its identity: the job keeps it alive, so no other one has that.
        (request.base_url, request.model_id, request.reader, id(run)),
        lambda: made.append(process.report(request, prefix, step, run)),
        awaited=not background,
    )
    # One that waits for its metrics takes its turn after the one in flight.
    admission = process.worker.submit(job, overlap=not background)
    if admission is Admission.OVERLAPPING:
        counters.count("overlapping")
    elif admission is Admission.TURNED_AWAY:
        counters.count("turned_away")
        counters.tell("turned_away", "timing is not logged: too many models' reports are waiting")
    elif job.done is not None:
        if job.done.wait(min(request.timeout + _MARGIN, threading.TIMEOUT_MAX)):
            return made[0] if made else None
        counters.tell(
            "background",
            f"the report of model {shown(model_id)} is not made yet after {request.timeout:g} s, "
            "and goes on in the background: others are before it",
        )
    return None


def _checked_prefix(prefix: object) -> str:
    name = prefix.rstrip("/") if isinstance(prefix, str) else ""
    if not name or "*" in name:
        raise InvalidCallError(f"prefix is {shown(prefix)}; pass a name such as 'lilo'")
    return name


def _plain(step: Any) -> float | None:
    """The step as a plain number, also from numpy's and torch's."""
    if step is None:
        return None
    try:
        whole = int(operator.index(step))
    except TypeError:
        pass
    else:
        if abs(whole) > MAX_STEP:
            raise InvalidCallError(f"step is outside -2**53 to 2**53: {shown(step)}")
        return whole
    try:
        number = math.nan if isinstance(step, str) else float(step)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise InvalidCallError(f"step is {shown(step)}; pass a number, or None")
    return number
