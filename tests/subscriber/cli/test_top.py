"""`pullstream top`: rates between two states, and the table."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from pullstream.cli.top import age_of, rows_of, table_of
from pullstream_emulator import Emulator
from tests.subscriber.command_line import pullstream

TOPIC, FIRST, SECOND = (
    "projects/p/topics/orders",
    "projects/p/subscriptions/first",
    "projects/p/subscriptions/second",
)


def status(time: float, published: int, **acknowledged: int) -> dict[str, Any]:
    return {
        "broker": {"time": time},
        "topics": [{"name": TOPIC, "published": published}],
        "subscriptions": [
            {
                "name": f"projects/p/subscriptions/{name}",
                "topic": TOPIC,
                "backlog": published - count,
                "oldestUnackedSeconds": 61.5,
                "leased": 1,
                "streams": 1,
                "delivered": count + 1,
                "acknowledged": count,
                "nacked": 0,
                "expired": 0,
            }
            for name, count in acknowledged.items()
        ],
    }


def test_the_top_command_shows_message_rates_between_two_readings_of_the_counters() -> None:
    """The largest backlog comes first. A new subscription has no rates yet."""
    before = status(100.0, 10, first=4)
    now = status(102.0, 1010, first=1004, second=10)
    rows = rows_of(before, now)
    assert [row["subscription"] for row in rows] == [SECOND, FIRST]
    assert rows[1]["acknowledgedPerSecond"] == 500
    assert rows[1]["publishedPerSecond"] == 500
    assert rows[0]["acknowledgedPerSecond"] == 0


def test_the_top_command_shows_no_negative_message_rates_after_a_broker_restart() -> None:
    """The counters of a restarted broker begin at 0."""
    (row,) = rows_of(status(100.0, 1000, first=900), status(101.0, 5, first=1))
    assert (row["publishedPerSecond"], row["acknowledgedPerSecond"]) == (0, 0)


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_top_command_truncates_names_but_not_numbers_on_a_narrow_terminal(width: int) -> None:
    """Names are, if the terminal is narrow."""
    rows = rows_of(status(0.0, 0, first=0), status(1.0, 123_456_789, first=1_234))
    screen = io.StringIO()
    Console(file=screen, width=width).print(table_of(rows, "the broker is away", width))
    text = screen.getvalue()
    assert "123,455,555" in text
    assert "1,234.0" in text
    assert ("delivered/s" in text) == (width == 200)
    assert "the broker is away" in " ".join(text.split())


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (45.9, "45s"), (200, "3m 20s"), (7200, "2h"), (7500, "2h 5m"), (90_000, "1d 1h")],
)
def test_the_top_command_shows_message_ages_in_at_most_two_time_units(
    seconds: float, text: str
) -> None:
    """The second one is left out if it is 0."""
    assert age_of(seconds) == text


def test_the_top_command_prints_one_table_to_a_pipe(emulator: Emulator) -> None:
    """Rows have tabs, or are one list in JSON."""
    project = ("--project", "p")
    pullstream("topics", "create", "orders", *project)
    pullstream("subscriptions", "create", "first", "--topic", "orders", *project)
    pullstream("publish", "orders", "a", *project)
    once = ("top", "--once", "--interval", "0.1", *project)
    (line,) = pullstream(*once).lines
    assert line.split("\t")[:3] == ["first", "orders", "1"]
    (row,) = json.loads(pullstream(*once, "--json").lines[0])
    assert (row["subscription"], row["backlog"]) == (FIRST, 1)
    assert pullstream("top", "--once", "--interval", "0.1", "--project", "other").lines == []
