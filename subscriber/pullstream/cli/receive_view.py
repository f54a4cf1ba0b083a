"""Progress display of `pullstream receive`: a live line, plain lines, or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from pullstream_protocol.clock import SYSTEM_CLOCK, Clock
from pullstream_protocol.printable import printable

from .ingest_view import RateMeter, Rates, iso_time

if TYPE_CHECKING:
    from pullstream.spark.receiver_processes.report import ReceiverReport

# Seconds between two updates of a terminal.
_REDRAW = 0.25

_Show = Callable[["ReceiverReport", Rates], None]


class ReceiveView:
    """Shows the newest report again and again.

    Attributes:
        report: The newest report.

    Args:
        show: Shows a report with the rates of the last time.
        pace: Seconds between two reports that are shown.
        clock: Source of time.
    """

    def __init__(self, show: _Show, pace: float, clock: Clock = SYSTEM_CLOCK) -> None:
        from pullstream.spark.receiver_processes.report import ReceiverReport

        self.report: ReceiverReport = ReceiverReport()
        self._show = show
        self._pace = pace
        self._clock = clock
        self._due = clock.monotonic()
        self._meter = RateMeter()

    def update(self, report: ReceiverReport) -> None:
        """Take a newer report, and show it if the last one was shown long enough ago."""
        self.report = report
        now = self._clock.monotonic()
        self._meter.add(now, report.rows, report.bytes)
        if now >= self._due:
            self._due = now + self._pace
            self._show(report, self._meter.rates)


@contextmanager
def receive_view(*, as_json: bool, pace: float) -> Iterator[ReceiveView]:
    """Provide the view that fits the output, during the block.

    Args:
        as_json: Whether the output is JSON.
        pace: Seconds between two lines in a file or a pipe.
    """
    if as_json:
        yield ReceiveView(_print_json, pace)
    elif not sys.stdout.isatty():
        yield ReceiveView(_print_line, pace)
    else:
        from rich.live import Live
        from rich.spinner import Spinner
        from rich.text import Text

        spinner = Spinner("dots")
        with Live(auto_refresh=False, transient=True) as live:

            def redraw(report: ReceiverReport, rates: Rates) -> None:
                spinner.update(text=Text(progress_text(report, rates)))
                live.update(spinner, refresh=True)

            yield ReceiveView(redraw, _REDRAW)


def _print_json(report: ReceiverReport, rates: Rates) -> None:
    click.echo(
        json.dumps(
            {
                "type": "progress",
                "time": iso_time(SYSTEM_CLOCK.now()),
                **record_of(report),
                "rowsPerSecond": round(rates.rows, 1),
                "bytesPerSecond": round(rates.bytes, 1),
            }
        )
    )
    sys.stdout.flush()


def _print_line(report: ReceiverReport, rates: Rates) -> None:
    time = datetime.fromtimestamp(SYSTEM_CLOCK.now()).astimezone()
    click.echo(f"{time:%H:%M:%S} {progress_text(report, rates)}")
    sys.stdout.flush()


def progress_text(report: ReceiverReport, rates: Rates) -> str:
    """Return a report for people, in one line."""
    problem = f" ({report.problem})" if report.problem else ""
    parts = [
        f"{report.activity.value}{problem}",
        f"{_counted(report.rows, 'message')} in {_counted(report.segments, 'segment')}",
        f"{rates.rows:,.0f} messages/s",
        f"{rates.bytes:,.0f} bytes/s",
        f"{_counted(report.waiting_segments, 'segment')} not committed "
        f"({report.waiting_bytes:,} bytes)",
        f"{report.leased:,} leased",
    ]
    if report.redelivered:
        parts.append(f"{report.redelivered:,} redelivered")
    if report.expired:
        parts.append(_counted(report.expired, "lost lease"))
    if report.abandoned:
        parts.append(_counted(report.abandoned, "abandoned segment"))
    if report.repeated:
        parts.append(f"{_counted(report.repeated, 'repeated call')} of the storage")
    return printable(", ".join(parts))


def record_of(report: ReceiverReport) -> dict[str, Any]:
    """Return a report for machines."""
    return {
        "receiver": report.name,
        "activity": report.activity.value,
        "problem": report.problem,
        "segments": report.segments,
        "messages": report.rows,
        "bytes": report.bytes,
        "waitingSegments": report.waiting_segments,
        "waitingBytes": report.waiting_bytes,
        "leased": report.leased,
        "acknowledged": report.acknowledged,
        "returned": report.returned,
        "redelivered": report.redelivered,
        "lostLeases": report.expired,
        "abandonedSegments": report.abandoned,
        "repeatedCalls": report.repeated,
        "seconds": round(report.seconds, 3),
    }


def summary(report: ReceiverReport, *, as_json: bool) -> str:
    """Return the final numbers."""
    if as_json:
        kind = {"type": "result", "time": iso_time(SYSTEM_CLOCK.now())}
        return json.dumps({**kind, **record_of(report)})
    lines = [
        f"{_counted(report.rows, 'message')} in {_counted(report.segments, 'segment')}, "
        f"{report.bytes:,} bytes, in {report.seconds:,.1f} s",
        f"{report.acknowledged:,} acknowledged, {report.returned:,} returned",
    ]
    if report.waiting_segments:
        lines.append(f"{_counted(report.waiting_segments, 'segment')} not known to be committed")
    return "\n".join(lines)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
