"""The cases of publishing, compared with the official publisher and a bare loop of calls."""

from __future__ import annotations

from dataclasses import dataclass

from .peers import BARE, BARE_FUTURES, OFFICIAL, OURS
from .rows import Case, Row


@dataclass(frozen=True)
class PublishWork:
    """One publisher. See tests/bench/publish_client.py for `mode`.

    Attributes:
        peer: The client.
        mode: How it publishes.
        batch: The most messages of a request.
        keys: Number of ordering keys; 0: no key.
        latency: Seconds that the server takes for a request.
        on_broker: Whether the server is our broker, and not one without any work.
    """

    peer: str
    mode: str = "each"
    batch: int = 100
    keys: int = 0
    latency: float = 0.0
    on_broker: bool = False


GROUP = "publishing"


def _all_three(
    batch: int, official: float, futures: float | None = None, cpu: float | None = None
) -> Case:
    """Return the case of `publish()` with requests of this size."""
    rows = [
        Row("rate", against=OFFICIAL, at_least=official),
        Row("rate", against=BARE),
        # A `publish` by one thread, without retries, timers, hooks, and answers to other threads.
        Row("rate", against=BARE_FUTURES, at_least=futures),
        Row("rate", run=BARE_FUTURES, against=BARE),
    ]
    if cpu is not None:
        rows.append(Row("cpu_micros", against=OFFICIAL, at_most=cpu))
    return Case(
        f"publisher, batches of {batch:,}",
        GROUP,
        {
            OURS: PublishWork(OURS, batch=batch),
            OFFICIAL: PublishWork(OFFICIAL, batch=batch),
            BARE: PublishWork(BARE, batch=batch),
            BARE_FUTURES: PublishWork(BARE_FUTURES, batch=batch),
        },
        tuple(rows),
    )


def _compared_with_official(name: str, floor: float, work: PublishWork) -> Case:
    official = PublishWork(OFFICIAL, work.mode, work.batch, work.keys, work.latency, work.on_broker)
    return Case(
        name,
        GROUP,
        {OURS: work, OFFICIAL: official},
        (Row("rate", against=OFFICIAL, at_least=floor),),
    )


PUBLISH_CASES = (
    _all_three(1000, 10, cpu=4),
    _all_three(100, 10, futures=0.5),
    _all_three(10, 3),
    Case(
        "publisher, publish_many of 1,000",
        GROUP,
        {OURS: PublishWork(OURS, "many", 1000), BARE: PublishWork(BARE, batch=1000)},
        (Row("rate", against=BARE, at_least=0.6),),
    ),
    _compared_with_official("publisher, 1,000 ordering keys", 7, PublishWork(OURS, keys=1000)),
    _compared_with_official("publisher, 20 ms latency", 5, PublishWork(OURS, latency=0.02)),
    Case(
        "publisher, one at a time",
        GROUP,
        {peer: PublishWork(peer, "one", on_broker=True) for peer in (OURS, OFFICIAL)},
        (
            Row("p50_ms", against=OFFICIAL, at_least=1),
            Row("p99_ms", against=OFFICIAL, at_least=1),
        ),
    ),
    _compared_with_official(
        "publisher, 1,000 concurrent awaits", 5, PublishWork(OURS, "await", on_broker=True)
    ),
)
