"""Display of `pullstream worker`: a live table, plain lines, or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from pullstream.worker.scoreboard import Score
from pullstream.worker.supervisor import Row, View
from pullstream_protocol.printable import printable

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

# The display is updated once a second; a file or a pipe gets every tenth update.
_SHOWN_OF = 10

_COLUMNS = (
    *("process", "state", "msg/s", "acked", "nacked", "running", "held", "load", "errors"),
    *("restarts", "p99 ms"),
)


@contextmanager
def worker_view(*, as_json: bool) -> Iterator[View]:
    """Provide the view that fits the output, during the block."""
    if as_json:
        yield JsonView()
    elif not sys.stdout.isatty():
        yield LinesView()
    else:
        from rich.live import Live

        # The output of the processes comes through `printed`; nothing else prints.
        with Live(auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live:
            yield TableView(live)


class JsonView:
    """An object every 10 s and at the end."""

    relays = False

    def __init__(self) -> None:
        self._pace = _Pace()

    def show(self, rows: Sequence[Row], total: Score) -> None:
        """Print all statistics and their total in every tenth call, and at the end."""
        if self._pace.is_time(rows):
            processes = [
                {"process": row.process, "pid": row.pid, "state": row.state, **_record(row.score)}
                for row in rows
            ]
            click.echo(json.dumps({"processes": processes, "total": _record(total)}))

    def remark(self, text: str) -> None:
        """Print the text to stderr, because stdout has the statistics."""
        click.echo(text, err=True)

    def printed(self, text: str) -> None:
        """Print the line to stderr, because stdout has the statistics."""
        click.echo(text, err=True)


class LinesView(JsonView):
    """A line of totals every 10 s and at the end."""

    def show(self, rows: Sequence[Row], total: Score) -> None:
        """Print the total in every tenth call and at the end."""
        if self._pace.is_time(rows):
            states = ",".join(sorted({row.state for row in rows}))
            values = {"processes": len(rows), "state": states, **_record(total)}
            click.echo(" ".join(f"{name}={value}" for name, value in values.items()))


class TableView:
    """A table that is redrawn each second, below the output of the callbacks."""

    relays = True

    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self, rows: Sequence[Row], total: Score) -> None:
        """Redraw the table with a row for each process and a row for the total."""
        self._live.update(_table(rows, total), refresh=True)

    def remark(self, text: str) -> None:
        """Print the text above the table."""
        self.printed(text)

    def printed(self, text: str) -> None:
        """Print the line above the table, without control characters."""
        from rich.text import Text

        self._live.console.print(Text(printable(text, keep_lines=True)), soft_wrap=True)


class _Pace:
    """Selects every tenth update, and the last one."""

    def __init__(self) -> None:
        self._calls = 0

    def is_time(self, rows: Sequence[Row]) -> bool:
        self._calls += 1
        return self._calls % _SHOWN_OF == 0 or all(row.state == "ended" for row in rows)


def _table(rows: Sequence[Row], total: Score) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in _COLUMNS:
        table.add_column(column, justify="left" if column == "state" else "right")
    for row in rows:
        table.add_row(str(row.process), row.state, *_cells(row.score))
    table.add_row("total", "", *_cells(total), style="bold")
    return table


def _cells(score: Score) -> list[str]:
    return [
        f"{score.rate:.0f}",
        str(score.acked),
        str(score.nacked),
        str(score.running),
        str(score.held),
        f"{score.load:.2f}",
        str(score.errors),
        str(score.restarts),
        f"{score.p99 * 1000:.0f}",
    ]


def _record(score: Score) -> dict[str, Any]:
    return {
        "messagesPerSecond": round(score.rate, 1),
        "acked": score.acked,
        "nacked": score.nacked,
        "running": score.running,
        "held": score.held,
        "load": round(score.load, 3),
        "errors": score.errors,
        "restarts": score.restarts,
        "p99Seconds": round(score.p99, 4),
    }
