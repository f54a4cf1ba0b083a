"""What is measured of feeds: how fast they are read, and how soon a watch has what is appended."""

from __future__ import annotations

from dataclasses import dataclass

from .peers import OURS
from .rows import Case, Row


@dataclass(frozen=True)
class WatchWork:
    """What a client does with feeds of our broker; modes are those of tests/bench/watch_client.py.

    messages: how many there are to read. topics: how many are watched. per_second: how many a
    publisher beside it appends.
    """

    mode: str
    messages: int = 0
    topics: int = 1
    per_second: int = 0


GROUP = "feeds"

WATCH_CASES = (
    Case(
        "watch, a backlog",
        GROUP,
        {OURS: WatchWork("watch", messages=500_000)},
        (Row("rate", at_least=150_000),),
    ),
    Case(
        "append to handler, 1,000 msg/s",
        GROUP,
        {OURS: WatchWork("latency", per_second=1_000)},
        (Row("p50_ms"), Row("p99_ms", at_most=5)),
    ),
    Case(
        "read by cursor, 1,000 a call",
        GROUP,
        {OURS: WatchWork("read", messages=500_000)},
        (Row("rate", at_least=200_000),),
    ),
    Case(
        "one append to 100 watched topics",
        GROUP,
        {OURS: WatchWork("fan-out", topics=100)},
        (Row("p50_ms"), Row("p99_ms")),
    ),
)
