"""`pullstream top`: a live table of a broker's subscriptions."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from pullstream_protocol import names
from pullstream_protocol.printable import printable

from .broker_admin import BrokerAdmin
from .context import CliContext, pass_session
from .groups import command
from .parameters import Seconds

if TYPE_CHECKING:
    from rich.table import Table

# The counters of a subscription whose rates are shown: the field of the status, and the column.
_RATES = (
    ("delivered", "delivered/s"),
    ("acknowledged", "acked/s"),
    ("nacked", "nacked/s"),
    ("expired", "expired/s"),
)

_HEADINGS = (
    *("subscription", "topic", "backlog", "oldest", "leased", "streams", "published/s"),
    *(heading for _, heading in _RATES),
)
# The columns with names, which may be shortened.
_NAMES = (0, 1)
# The other columns, the most important first: backlog, age, acknowledged, published, and so on.
_IMPORTANCE = (2, 3, 8, 6, 4, 9, 10, 1, 5, 7)

# Width of a shortened name, and between two columns.
_LEAST_NAME = 16
_GAP = 2


@command("top")
@click.option(
    "--interval",
    type=Seconds(min=0.1),
    default=1.0,
    show_default=True,
    help="Seconds between two updates.",
)
@click.option("--once", is_flag=True, help="Print one table, after one interval, and stop.")
@pass_session
def top(session: CliContext, interval: float, once: bool) -> None:
    """Show backlog, age, leases and rates of a broker's subscriptions until Ctrl-C.

    The subscriptions with the largest backlog come first. With --project, only its subscriptions
    are shown. Only pullstream's broker supports this.
    """
    admin = BrokerAdmin(session)
    project = session.project and session.project.removeprefix("projects/")
    pause = threading.Event()
    before = admin.status(project)
    if session.json or once:
        while True:
            pause.wait(interval)
            now = admin.status(project)
            rows = rows_of(before, now)
            if session.json:
                click.echo(json.dumps(rows))
            else:
                _print(rows)
            if once:
                return
            before = now
    _watch(admin, project, before, interval, pause)


def rows_of(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one row for each subscription, the largest backlog first.

    Args:
        before: An earlier status.
        now: The status now.
    """
    # The broker's clock may have been advanced in between; then the rates are too low.
    seconds = max(now["broker"]["time"] - before["broker"]["time"], 1e-3)
    topics = {each["name"]: each for each in before["topics"]}
    published = {
        each["name"]: _rate(topics.get(each["name"], each), each, "published", seconds)
        for each in now["topics"]
    }
    earlier = {each["name"]: each for each in before["subscriptions"]}
    rows = []
    for each in now["subscriptions"]:
        old = earlier.get(each["name"], each)
        row = {
            "subscription": each["name"],
            "topic": each["topic"],
            "backlog": each["backlog"],
            "oldestUnackedSeconds": each["oldestUnackedSeconds"],
            "leased": each["leased"],
            "streams": each["streams"],
            "publishedPerSecond": published.get(each["topic"], 0.0),
        }
        for field, _ in _RATES:
            row[f"{field}PerSecond"] = _rate(old, each, field, seconds)
        rows.append(row)
    return sorted(rows, key=lambda row: (-row["backlog"], row["subscription"]))


def _rate(old: Mapping[str, Any], new: Mapping[str, Any], field: str, seconds: float) -> float:
    # After a restart of the broker, the counter begins at 0 again.
    count: int = max(new[field] - old[field], 0)
    return round(count / seconds, 1)


def _watch(
    admin: BrokerAdmin,
    project: str | None,
    before: Mapping[str, Any],
    interval: float,
    pause: threading.Event,
) -> None:
    from rich.live import Live

    with Live(screen=True, auto_refresh=False) as live:
        while True:
            pause.wait(interval)
            try:
                now = admin.status(project)
            except click.ClickException as error:
                # The broker may be restarting.
                rows = rows_of(before, before)
                live.update(table_of(rows, error.message, live.console.width), refresh=True)
                continue
            rows = rows_of(before, now)
            live.update(table_of(rows, "", live.console.width), refresh=True)
            before = now


def table_of(rows: Sequence[Mapping[str, Any]], problem: str, width: int) -> Table:
    """Return the table for a terminal. No number is shortened; less important columns are left out.

    Args:
        rows: The rows of `rows_of`.
        problem: Shown below the table; empty if there is none.
        width: Width of the terminal, in characters.
    """
    from rich.table import Table

    cells = [cells_of(row) for row in rows]
    table = Table(box=None, pad_edge=False, caption=problem or None, caption_style="red")
    columns = zip(_HEADINGS, *cells, strict=True)
    indexes = _fitting([max(map(len, column)) for column in columns], width)
    for index in indexes:
        if index in _NAMES:
            table.add_column(_HEADINGS[index], overflow="ellipsis", no_wrap=True)
        else:
            table.add_column(_HEADINGS[index], justify="right", no_wrap=True)
    for row_cells in cells:
        table.add_row(*(row_cells[index] for index in indexes))
    return table


def _fitting(widths: Sequence[int], width: int) -> list[int]:
    """Return the indexes of the columns that fit into `width`, in the order of the table."""
    left = width - min(widths[0], _LEAST_NAME)
    chosen = [0]
    for index in _IMPORTANCE:
        needed = _GAP + (min(widths[index], _LEAST_NAME) if index in _NAMES else widths[index])
        if needed > left:
            break
        left -= needed
        chosen.append(index)
    return sorted(chosen)


def cells_of(row: Mapping[str, Any]) -> list[str]:
    """Return the texts of a row for people."""
    rates = (row["publishedPerSecond"], *(row[f"{field}PerSecond"] for field, _ in _RATES))
    return [
        printable(names.short_id(row["subscription"])),
        printable(names.short_id(row["topic"])),
        f"{row['backlog']:,}",
        age_of(row["oldestUnackedSeconds"]) if row["backlog"] else "",
        f"{row['leased']:,}",
        f"{row['streams']:,}",
        *(f"{rate:,.1f}" if rate else "" for rate in rates),
    ]


def age_of(seconds: float) -> str:
    """Return a duration with its two largest units: `45s`, `3m 20s`, `2h 5m`, `4d 1h`."""
    whole = int(seconds)
    units = ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))
    for index, (size, unit) in enumerate(units):
        if whole >= size:
            rest = units[index + 1] if index + 1 < len(units) else None
            second = whole % size // rest[0] if rest else 0
            return f"{whole // size}{unit}" + (f" {second}{rest[1]}" if rest and second else "")
    return "0s"


def _print(rows: Sequence[Mapping[str, Any]]) -> None:
    from rich.console import Console

    if sys.stdout.isatty():
        console = Console()
        console.print(table_of(rows, "", console.width))
    else:
        for row in rows:
            click.echo("\t".join(cells_of(row)))
