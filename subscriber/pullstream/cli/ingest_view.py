"""Progress display of `pullstream ingest`: a live line, plain lines, or JSON."""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import click

if TYPE_CHECKING:
    from rich.live import Live

    from pullstream.spark.ingest.runner import IngestReport

# Seconds between two lines in a file or a pipe; also the time over which the rate is measured.
_PACE = 10.0


class View(Protocol):
    """Shows reports, which arrive every half second."""

    def show(self, report: IngestReport) -> None:
        """Show one report; a view may skip reports."""


@contextmanager
def ingest_view(*, as_json: bool) -> Iterator[View]:
    """Provide the view that fits the output, during the block."""
    if as_json or not sys.stdout.isatty():
        yield LinesView(as_json=as_json)
    else:
        from rich.live import Live

        with Live(auto_refresh=False, transient=True) as live:
            yield LiveView(live)


class LinesView:
    """A line or an object every 10 s. The end is reported by the summary."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._next = _PACE
        self._rate = Rate()

    def show(self, report: IngestReport) -> None:
        """Print the report if at least 10 s of ingestion have passed since the last line."""
        rate = self._rate.update(report)
        if report.seconds >= self._next:
            self._next = report.seconds + _PACE
            values = {**_record(report), "rowsPerSecond": round(rate), "backlog": report.backlog}
            if self._as_json:
                click.echo(json.dumps({"progress": values}))
            else:
                click.echo(" ".join(f"{name}={value}" for name, value in values.items()))


class LiveView:
    """A line that is redrawn."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._rate = Rate()

    def show(self, report: IngestReport) -> None:
        """Redraw the line with the report's totals, rate and backlog."""
        from rich.spinner import Spinner

        totals, rate = report.totals, self._rate.update(report)
        text = (
            f"{totals.rows:,} rows in {totals.batches:,} batches, {rate:,.0f} rows/s, "
            f"backlog {report.backlog:,}, {totals.bad:,} bad, {report.seconds:,.0f} s"
        )
        self._live.update(Spinner("dots", text), refresh=True)


class Rate:
    """Rows per second over the last 10 s, because rows arrive in batches."""

    def __init__(self) -> None:
        self._reports: deque[tuple[float, int]] = deque()

    def update(self, report: IngestReport) -> float:
        """Add a report, and return the rate up to it; 0 for the first report."""
        self._reports.append((report.seconds, report.totals.rows))
        while self._reports[-1][0] - self._reports[0][0] > _PACE:
            self._reports.popleft()
        (since, before), (now, rows) = self._reports[0], self._reports[-1]
        return (rows - before) / (now - since) if now > since else 0.0


def summary(report: IngestReport, *, as_json: bool) -> str:
    """Return the final results."""
    totals = report.totals
    if as_json:
        details = {"to": report.to, "badTo": report.bad_to, "stopped": report.stopped}
        return json.dumps({**_record(report), **details})
    rate = totals.rows / report.seconds if report.seconds else 0.0
    lines = [
        f"{totals.rows:,} messages in {totals.batches:,} batches, {totals.bytes:,} bytes of data, "
        f"in {report.seconds:,.1f} s ({rate:,.0f} a second)",
        f"{totals.rows - totals.bad:,} rows to {report.to}",
    ]
    if report.bad_to is not None:
        lines.append(f"{totals.bad:,} undecodable messages to {report.bad_to}")
    if totals.unknown_fields:
        lines.append(f"{totals.unknown_fields:,} fields outside the schema left out")
    if totals.cut_times:
        lines.append(f"{totals.cut_times:,} rows with times whose nanoseconds were cut")
    lines.append(f"{report.duplicates:,} duplicates left out")
    if report.stopped:
        lines.append("stopped between two batches; the next run continues from there")
    return "\n".join(lines)


def _record(report: IngestReport) -> dict[str, Any]:
    return {
        "batches": report.totals.batches,
        "messages": report.totals.rows,
        "bytes": report.totals.bytes,
        "bad": report.totals.bad,
        "unknownFields": report.totals.unknown_fields,
        "cutTimes": report.totals.cut_times,
        "duplicates": report.duplicates,
        "seconds": round(report.seconds, 3),
    }
