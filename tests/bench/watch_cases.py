"""The cases of feeds: reading speed, and the delay from an append to a watch."""

from __future__ import annotations

from dataclasses import dataclass

from .peers import OURS
from .rows import Case, Row


@dataclass(frozen=True)
class WatchWork:
    """The work of a client with our broker's feeds. See tests/bench/watch_client.py for the modes.

    Attributes:
        messages: The number of messages to read.
        topics: The number of watched topics.
        per_second: The messages per second that a publisher appends at the same time.
    """

    mode: str
    messages: int = 0
    topics: int = 1
    per_second: int = 0


GROUP = "channels and feeds"
BARE = "bare grpc.aio stream"

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
        {OURS: WatchWork("fan-out", topics=100), BARE: WatchWork("bare-fan-out", topics=100)},
        # The bare stream takes 8 to 12 ms, as fast as the machine is. The engine adds 3 ms.
        (Row("p50_ms", against=BARE, at_least=0.45), Row("p99_ms")),
    ),
)
