"""Progress display of `pullstream ingest`: a live line, plain lines, or JSON."""

from __future__ import annotations

import json
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import click

from pullstream_protocol.clock import SYSTEM_CLOCK, Clock

from .top import age_of

if TYPE_CHECKING:
    from rich.live import Live

    from pullstream.spark.ingest.report import IngestReport

# Seconds between two updates of a terminal, and the default for a file or a pipe: no 2 s pass
# without a sign of life, also on a busy machine.
_REDRAW = 0.25
PACE = 1.5

# Most reasons of bad rows, and fields outside the schema, that are shown.
_SHOWN = 20

# The time over which rates are measured, in seconds. Rows arrive in batches, so it is longer than
# most batches take.
_RATE_SECONDS = 30.0


class Rates(NamedTuple):
    """Rows and bytes a second."""

    rows: float
    bytes: float


class Moment(NamedTuple):
    """The state of a job at one moment.

    Attributes:
        report: The newest report of the job.
        rates: Rows and bytes a second in the last time.
        waiting: Number of unacknowledged messages on the server; None: it cannot be asked.
        now: The time, in seconds since the epoch.
    """

    report: IngestReport
    rates: Rates
    waiting: int | None
    now: float


class Shown(Protocol):
    """Shows moments."""

    @property
    def pace(self) -> float:
        """Seconds between two moments that are shown."""

    def show(self, moment: Moment) -> None:
        """Show a moment."""


class IngestView:
    """Shows the newest report again and again, also while the command's thread waits for Spark.

    Args:
        shown: Where and how it is shown.
        first: The report until there is another one.
        waiting: Returns the number of unacknowledged messages on the server, or None.
        clock: Source of time.
    """

    def __init__(
        self,
        shown: Shown,
        first: IngestReport,
        waiting: Callable[[], int | None] = lambda: None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._shown = shown
        self._waiting = waiting
        self._clock = clock
        self._lock = threading.Lock()
        self._first = self._newest = first
        self._meter = RateMeter()
        self._due = clock.monotonic()
        self._end = threading.Event()

    @property
    def moment(self) -> Moment:
        """The present moment. Any thread may ask."""
        with self._lock:
            report, rates = self._newest, self._meter.rates
        return Moment(report, rates, self._waiting(), self._clock.now())

    def update(self, report: IngestReport) -> None:
        """Take a newer report."""
        with self._lock:
            self._newest = report
            self._meter.add(self._clock.monotonic(), report.totals.rows, report.totals.bytes)

    def show_if_due(self) -> None:
        """Show the newest report if the last one was shown long enough ago."""
        now = self._clock.monotonic()
        if now >= self._due:
            self._due = now + self._shown.pace
            self._shown.show(self.moment)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Show reports during the block, and the last one if the block fails."""
        thread = threading.Thread(target=self._run, name="pullstream-ingest-view", daemon=True)
        self.show_if_due()
        thread.start()
        try:
            yield
        except BaseException:
            self._stop(thread)
            if self._newest is not self._first:
                self._shown.show(self.moment)
            raise
        else:
            self._stop(thread)

    def _run(self) -> None:
        while not self._end.wait(min(_REDRAW, self._shown.pace)):
            try:
                self.show_if_due()
            except OSError:
                # The reader of the output has closed the pipe; the command's own output fails too.
                return

    def _stop(self, thread: threading.Thread) -> None:
        self._end.set()
        thread.join()


@contextmanager
def shown(*, as_json: bool, pace: float) -> Iterator[Shown]:
    """Provide the form that fits the output, during the block.

    Args:
        as_json: Whether the output is JSON.
        pace: Seconds between two lines in a file or a pipe.
    """
    if as_json or not sys.stdout.isatty():
        yield Lines(as_json=as_json, pace=pace)
    else:
        from rich.live import Live

        with Live(auto_refresh=False, transient=True) as live:
            yield LiveLine(live)


class Lines:
    """A line or an object for each moment."""

    def __init__(self, *, as_json: bool, pace: float = PACE) -> None:
        self._as_json = as_json
        self._notice = ""
        self.pace = pace

    def show(self, moment: Moment) -> None:
        """Print the moment."""
        if self._as_json:
            click.echo(json.dumps(progress_record(moment)))
        else:
            notice = moment.report.notice
            if notice != self._notice:
                self._notice = notice
                click.echo(f"{_clock_time(moment.now, moment.now)} {notice}")
            click.echo(f"{_clock_time(moment.now, moment.now)} {progress_text(moment)}")
        sys.stdout.flush()


class LiveLine:
    """A line that is redrawn."""

    pace = _REDRAW

    def __init__(self, live: Live) -> None:
        from rich.spinner import Spinner

        self._live = live
        self._spinner = Spinner("dots")
        self._notice = ""

    def show(self, moment: Moment) -> None:
        """Redraw the line; a notice stays above it."""
        from rich.text import Text

        if moment.report.notice != self._notice:
            self._notice = moment.report.notice
            self._live.console.print(Text(self._notice), soft_wrap=True)
        self._spinner.update(text=Text(progress_text(moment)))
        self._live.update(self._spinner, refresh=True)


class RateMeter:
    """Rows and bytes per second over the last half minute."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int, int]] = deque()

    def add(self, seconds: float, rows: int, size: int) -> None:
        """Add the sums that were reached at a monotonic time."""
        self._seen.append((seconds, rows, size))
        while self._seen[-1][0] - self._seen[0][0] > _RATE_SECONDS:
            self._seen.popleft()

    @property
    def rates(self) -> Rates:
        """The rates up to the last sums; 0 before there are two."""
        if len(self._seen) < 2 or self._seen[-1][0] <= self._seen[0][0]:
            return Rates(0.0, 0.0)
        (since, rows, size), (now, more_rows, more_size) = self._seen[0], self._seen[-1]
        return Rates((more_rows - rows) / (now - since), (more_size - size) / (now - since))


def progress_text(moment: Moment) -> str:
    """Return a moment for people, in one line."""
    report, totals = moment.report, moment.report.totals
    parts = [
        _phase(moment),
        f"{_counted(totals.rows, 'row')} in {_batches(totals.batches)}",
        f"{moment.rates.rows:,.0f} rows/s",
        f"{moment.rates.bytes:,.0f} bytes/s",
        f"lag {age_of(report.lag)}",
    ]
    if report.receivers is not None:
        wanted, running, restarts = report.receivers
        again = f", started again {_counted(restarts, 'time')}" if restarts else ""
        parts.append(f"{running} of {_counted(wanted, 'receiver')}{again}")
    if moment.waiting is not None:
        parts.append(f"{moment.waiting:,} messages unacknowledged")
    if totals.known:
        parts.append(f"{_were(totals.known)} there already")
    if totals.bad:
        reason = "" if report.bad_reason is None else f" (most often: {report.bad_reason})"
        parts.append(f"{_counted(totals.bad, 'bad row')}{reason}")
    if totals.unknown_fields:
        names = ", ".join(list(_largest(report.unknown))[:3])
        often = f" (most often: {names})" if names else ""
        parts.append(f"{totals.unknown_fields:,} fields outside the schema{often}")
    return ", ".join(parts)


def _phase(moment: Moment) -> str:
    """Return the phase with its duration or its beginning."""
    from pullstream.spark.ingest.report import Phase

    report = moment.report
    if report.phase is Phase.UNREACHABLE and report.outage is not None:
        server, (since, error) = report.server, report.outage
        return f"{report.phase.value} at {server} since {_clock_time(since, moment.now)} ({error})"
    if report.phase is Phase.WAITING:
        return f"{report.phase.value} since {_clock_time(report.since, moment.now)}"
    return f"{report.phase.value} for {age_of(max(moment.now - report.since, 0.0))}"


def _clock_time(seconds: float, now: float) -> str:
    """Return a time of this day as local time, and another one with its date."""
    time, today = (datetime.fromtimestamp(each).astimezone() for each in (seconds, now))
    return f"{time:%H:%M:%S}" if time.date() == today.date() else f"{time:%Y-%m-%d %H:%M:%S}"


def progress_record(moment: Moment) -> dict[str, Any]:
    """Return a moment for machines."""
    report = moment.report
    return {
        "type": "progress",
        "time": iso_time(moment.now),
        "phase": report.phase.value,
        "since": iso_time(report.since),
        **_record(report),
        "rowsPerSecond": round(moment.rates.rows, 1),
        "bytesPerSecond": round(moment.rates.bytes, 1),
        "lagSeconds": round(report.lag, 3),
        "unacknowledged": moment.waiting,
        "plan": report.source.get("plan", 0),
        "waitingSegments": report.waiting.segments,
        "waitingBytes": report.waiting.bytes,
        "deliveryAttempts": report.waiting.attempts,
        "longCommitted": report.source.get("longCommitted", 0),
        "receivers": None if report.receivers is None else report.receivers._asdict(),
        "outage": _outage(report),
        "notice": report.notice,
    }


def _outage(report: IngestReport) -> dict[str, str] | None:
    if report.outage is None:
        return None
    since, error = report.outage
    return {"server": report.server, "since": iso_time(since), "error": error}


def iso_time(seconds: float) -> str:
    """Return a time in UTC, with milliseconds."""
    time = datetime.fromtimestamp(seconds, timezone.utc)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def summary(report: IngestReport, *, as_json: bool, now: float, unit: str = "row") -> str:
    """Return the final results.

    Args:
        report: The last report.
        as_json: Whether it is for machines.
        now: The time, in seconds since the epoch.
        unit: Noun for a good message in the table: "row" or "change".
    """
    totals = report.totals
    if as_json:
        details = {"to": report.to, "badTo": report.bad_to, "stopped": report.stopped}
        kind = {"type": "result", "time": iso_time(now)}
        return json.dumps({**kind, **_record(report), **details})
    rate = totals.rows / report.seconds if report.seconds else 0.0
    lines = [
        f"{_counted(totals.rows, 'message')} in {_batches(totals.batches)}, "
        f"{totals.bytes:,} bytes of data, "
        f"in {report.seconds:,.1f} s ({rate:,.0f} a second)",
        f"{_counted(totals.rows - totals.bad, unit)} to {report.to}",
    ]
    if report.bad_to is not None:
        lines.append(f"{_counted(totals.bad, 'bad row')} to {report.bad_to}")
        lines += _by_reason(report)
    if totals.known:
        lines.append(f"{_were(totals.known)} in the table already")
    if totals.unknown_fields:
        names = ", ".join(_largest(report.unknown))
        often = f", most often: {names}" if names else ""
        lines.append(f"{totals.unknown_fields:,} fields outside the schema left out{often}")
    if totals.cut_times:
        lines.append(f"{totals.cut_times:,} rows with times whose nanoseconds were cut")
    lines.append(f"{_counted(report.duplicates, 'duplicate')} left out")
    if report.stopped:
        lines.append("stopped between two batches; the next run continues from there")
    return "\n".join(lines)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _batches(number: int) -> str:
    return "1 batch" if number == 1 else f"{number:,} batches"


def _were(batches: int) -> str:
    return f"{_batches(batches)} {'was' if batches == 1 else 'were'}"


def _by_reason(report: IngestReport) -> Iterator[str]:
    """Yield a line for each frequent reason of bad rows."""
    counted = sum(report.reasons.values())
    of = "" if counted >= report.totals.bad else f" of {counted:,}"
    for reason, number in _largest(report.reasons).items():
        yield f"  {number:,}{of} because of: {reason}"


def _largest(numbers: Mapping[str, int]) -> dict[str, int]:
    """Return the largest numbers, in their order."""
    by_size = sorted(numbers.items(), key=lambda one: (-one[1], one[0]))
    return dict(by_size[:_SHOWN])


def _record(report: IngestReport) -> dict[str, Any]:
    return {
        "batches": report.totals.batches,
        "messages": report.totals.rows,
        "bytes": report.totals.bytes,
        "bad": report.totals.bad,
        "badReasons": _largest(report.reasons),
        "known": report.totals.known,
        "unknownFields": report.totals.unknown_fields,
        "unknownFieldNames": _largest(report.unknown),
        "cutTimes": report.totals.cut_times,
        "duplicates": report.duplicates,
        "seconds": round(report.seconds, 3),
    }
