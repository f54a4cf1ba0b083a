"""Costs of a spool in an object store: requests, their price, and the limits of many receivers.

    python -m tests.bench.spool_costs [--write-docs]

The rules of the protocol run on a storage in memory, which counts requests and lets simulated time
pass for each of them. Time also passes for the coordinator's CPU and for the engine, by measured
costs. `--write-docs` puts the tables into docs/spark-limits.md.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from typing import Any, NamedTuple

import pyarrow as pa

from pullstream.spark.protocol.acknowledge import Acknowledge
from pullstream.spark.protocol.coordinator import START, Coordinator, CoordinatorSettings
from pullstream.spark.protocol.receiver import Receiver
from pullstream.spark.protocol.storage import run
from pullstream.spark.stores import StoredFile
from tests.written_block import write_block

from .client import SUBSCRIPTION
from .servers import ROOT

PAGE = ROOT / "docs" / "spark-limits.md"
MILLION = 1_000_000
MONTH = 30 * 86_400

# ---- assumed: a store in the same region; seconds of a request, and dollars for a million --------
SECONDS = {"put": 0.030, "get": 0.020, "list": 0.040, "delete": 0.020}
# S3 Standard in us-east-1. Deletions cost nothing.
PRICES = {"put": 5.0, "get": 0.4, "list": 5.0, "delete": 0.0}
# Files in the answer to one list, and requests at the same time.
LISTED, AT_ONCE = 1_000, 32

# ---- measured: docs/performance.md, tests/bench/NOTES.md -----------------------------------------
# Bytes a second of a stream of Google's, and of a receiver's process with more streams.
STREAM, PROCESS = 10_000_000, 60_000_000
# Messages of 100 bytes a second of a receiver's process.
MESSAGES = 185_000
# Seconds of the coordinator's CPU for a row, with 5,000,000 known ids.
PLAN_ROW = 2.0e-6
# Rows a second of a core of an executor, with its JVM.
CORE_ROWS = 80_000
# Seconds of a batch besides its rows: Spark's logs and planning, and the commit of a table.
BATCH = 0.6
# Rows of the largest batch. The coordinator has the ids of a batch in memory, 200 bytes for each.
LARGEST = 1_000_000

# ---- chosen --------------------------------------------------------------------------------------
STREAMS = 4
SIZES = {100: "100 B", 1_000: "1 KB", 10_000: "10 KB"}
RECEIVERS = (1, 10, 100)
# Messages a second of a receiver for the count of requests, and rows of a segment.
RATE, SEGMENTS = 5_000, (10_000, 50_000)
LOOK, IDLE, TIDY = 5.0, 1.0, 60.0
# Simulated seconds, of which the first ones are not counted.
RUN, WARM = 90.0, 30.0
# Cores of executors for each core that is always busy, as they rest while the coordinator plans.
SPARE = 2.5
# A rate is too much if this many of the largest batches wait.
TOO_MANY = 3
# One simulated id stands for this many, as no request depends on their number.
EACH = 1_000


class CountingStorage:
    """A storage in memory, which counts requests, and on which they take their time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.requests: Counter[str] = Counter()
        # By the first part of the path.
        self._folders: dict[str, dict[str, tuple[bytes, float]]] = defaultdict(dict)
        self._at_once = 1

    def create(self, path: str, data: bytes) -> bool:
        self._count("put")
        folder = self._folder(path)
        if path in folder:
            return False
        folder[path] = data, self.now
        return True

    def put(self, path: str, data: bytes) -> None:
        self._count("put")
        self._folder(path)[path] = data, self.now

    def get(self, path: str) -> bytes | None:
        self._count("get")
        found = self._folder(path).get(path)
        return None if found is None else found[0]

    def open(self, path: str) -> pa.NativeFile:
        return pa.BufferReader(self.get(path))

    def files(self, prefix: str) -> Iterator[StoredFile]:
        found = [
            StoredFile(path, len(data), time)
            for path, (data, time) in self._folder(prefix).items()
            if path.startswith(f"{prefix}/")
        ]
        for _ in range(max(ceil(len(found) / LISTED), 1)):
            self._count("list")
        return iter(found)

    def delete(self, path: str) -> None:
        self._count("delete")
        self._folder(path).pop(path, None)

    def _folder(self, path: str) -> dict[str, tuple[bytes, float]]:
        return self._folders[path.partition("/")[0]]

    @contextmanager
    def another_process(self) -> Iterator[None]:
        """Let the requests of the block take no time of this process."""
        now = self.now
        yield
        self.now = now

    def map_all(self, function: Callable[[Any], Any], values: Iterable[Any]) -> list[Any]:
        """Call the function with all values at the same time."""
        values = list(values)
        self._at_once = min(max(len(values), 1), AT_ONCE)
        try:
            return [function(value) for value in values]
        finally:
            self._at_once = 1

    def _count(self, kind: str) -> None:
        self.requests[kind] += 1
        self.now += SECONDS[kind] / self._at_once


class Costs(NamedTuple):
    """The result of a simulation.

    Attributes:
        requests: Requests for a million messages, by kind.
        rate: Committed messages a second.
        batch: Seconds of a batch.
        planning: Seconds of them for which the coordinator plans.
        cores: Cores of executors.
        is_enough: Whether the engine keeps up with the receivers.
    """

    requests: dict[str, float]
    rate: float
    batch: float
    planning: float
    cores: int
    is_enough: bool

    @property
    def total(self) -> float:
        return sum(self.requests.values())

    @property
    def dollars(self) -> float:
        """The price of the requests for a million messages."""
        return sum(count * PRICES[kind] for kind, count in self.requests.items()) / MILLION


@dataclass
class _Party:
    receiver: Receiver
    next_segment: float
    next_look: float


def simulate(
    receivers: int, rate: float, rows: int, acknowledge: Acknowledge = Acknowledge.COMMITTED
) -> Costs:
    """Let receivers and an engine run for some minutes.

    Args:
        receivers: Number of receivers.
        rate: Messages a second of each.
        rows: Rows of a segment.
        acknowledge: When the receivers acknowledge.
    """
    storage = CountingStorage()
    parties = []
    for number in range(receivers):
        receiver = Receiver(
            SUBSCRIPTION.format(0),
            acknowledge,
            max_age=1e9,
            share=10**15,
            elapsed=lambda: storage.now,
        )
        run(receiver.start(), storage)
        part = (number + 1) / receivers
        parties.append(_Party(receiver, rows / rate * part, LOOK * part))
    settings = CoordinatorSettings(
        subscription=SUBSCRIPTION.format(0),
        acknowledge=acknowledge,
        max_rows=LARGEST // EACH,
        max_bytes=10**15,
    )
    coordinator = Coordinator(settings, elapsed=lambda: storage.now)
    cores = ceil(receivers * rate / CORE_ROWS * SPARE)
    written = committed = batches = 0
    planning = 0.0
    counted_from: tuple[int, float, Counter[str]] | None = None
    start, next_tidy = START, TIDY
    while storage.now < RUN and written - committed < TOO_MANY * LARGEST:
        now = storage.now
        for one in parties:
            while one.next_segment <= now:
                one.next_segment += rows / rate
                ids = [str(10**16 + written // EACH + row) for row in range(rows // EACH)]
                written += rows
                with storage.another_process():
                    run(one.receiver.write(pa.record_batch({"message_id": ids}), 0.0), storage)
            while one.next_look <= now and acknowledge is Acknowledge.COMMITTED:
                one.next_look += LOOK
                with storage.another_process():
                    run(one.receiver.look(), storage)
        if counted_from is None and storage.now >= WARM:
            counted_from = committed, storage.now, storage.requests.copy()
            batches, planning = 0, 0.0
        begun = storage.now
        end = run(coordinator.latest(start), storage)
        if end is None:
            storage.now = max(storage.now, begun + IDLE)
        else:
            plan = run(coordinator.plan(start, end), storage)
            batch = sum(part.taken for part in plan.parts) * EACH
            storage.now += batch * PLAN_ROW
            planning += storage.now - begun
            with storage.another_process():
                for each in plan.parts:
                    storage.get(each.segment.path)
            storage.now += BATCH + batch / CORE_ROWS / cores
            committed, batches, start = committed + batch, batches + 1, end
        if storage.now >= next_tidy and start != START:
            next_tidy += TIDY
            run(coordinator.tidy(), storage)
    before, since, requests = counted_from or (0, 0.0, Counter())
    seconds, messages = storage.now - since, max(committed - before, 1)
    return Costs(
        {kind: (storage.requests[kind] - requests[kind]) * MILLION / messages for kind in PRICES},
        messages / seconds,
        seconds / max(batches, 1),
        planning / max(batches, 1),
        cores,
        storage.now >= RUN,
    )


def receiver_rate(size: int) -> float:
    """Return the messages a second that one receiver takes from Google, by their size in bytes."""
    return min(STREAMS * STREAM / size, PROCESS / size, MESSAGES)


def busiest(receivers: int, size: int) -> tuple[float, Costs]:
    """Return the highest rate of messages of a size that receivers and one query sustain."""
    rate = receiver_rate(size)
    while True:
        # Two seconds of messages, at most 64 MiB.
        rows = min(2 * rate, 64 * 2**20 / size, 50_000)
        costs = simulate(receivers, rate, max(round(rows / EACH), 1) * EACH)
        if costs.is_enough:
            return receivers * rate, costs
        rate = min(rate * 0.93, 0.5 / PLAN_ROW / receivers)


def limits() -> list[list[str]]:
    """Return the table of the limits of several receivers."""
    rows = [
        [
            *("messages", "receivers", "they receive", "one query reads", "batch"),
            *("of it planning", "cores", "requests for a million", "price a month"),
        ]
    ]
    for size, label in SIZES.items():
        for receivers in RECEIVERS:
            rate, costs = busiest(receivers, size)
            month = costs.dollars * rate * MONTH / MILLION
            rows.append(
                [
                    label,
                    str(receivers),
                    _rate(receivers * receiver_rate(size)),
                    _rate(rate),
                    f"{costs.batch:.1f} s",
                    f"{costs.planning:.1f} s",
                    str(costs.cores),
                    f"{costs.total:,.0f}",
                    f"${month:,.0f}",
                ]
            )
    return rows


def request_counts() -> list[list[str]]:
    """Return the table of requests by one receiver at a moderate rate."""
    rows = [["acknowledge", "rows of a segment", *PRICES, "in all", "price of a billion"]]
    for acknowledge in Acknowledge:
        for each in SEGMENTS:
            costs = simulate(1, RATE, each, acknowledge)
            counts = [f"{count:,.0f}" for count in costs.requests.values()]
            price = f"${costs.dollars * 1000:,.2f}"
            rows.append(
                [f"`{acknowledge.value}`", f"{each:,}", *counts, f"{costs.total:,.0f}", price]
            )
    return rows


def _rate(messages: float) -> str:
    """Return a rate with two significant digits, as it is an estimate."""
    return f"{float(f'{messages:.2g}'):,.0f}/s"


def markdown(rows: Sequence[Sequence[str]]) -> str:
    lines = [*rows[:1], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


BLOCKS = {"limits": limits, "requests": request_counts}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write-docs", action="store_true", help="put the tables into docs/")
    chosen = parser.parse_args(arguments)
    for name, table in BLOCKS.items():
        text = markdown(table())
        print(text)
        if chosen.write_docs:
            write_block(PAGE, name, text)


if __name__ == "__main__":
    main()
