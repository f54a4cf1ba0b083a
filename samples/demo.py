"""Demo of pullstream: publish a file, handle it in parallel, and check all guarantees.

    make demo                 3,376 airports, one ordering key for each state
    make demo FILE=my.log     any text file, one record per line, twenty ordering keys

The broker runs inside this process. Some callbacks are slow, some nack their message, some raise.
At the end the program verifies that every record was handled, each key in order, and that the
subscription is empty. It exits with 1 if a check failed.
"""

from __future__ import annotations

import argparse
import csv
import logging
import statistics
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from pullstream import (
    FlowControl,
    Message,
    PublisherClient,
    PublisherOptions,
    StreamingPullFuture,
    SubscriberClient,
)
from pullstream_emulator import Emulator

AIRPORTS = Path(__file__).parent / "data" / "airports.csv"
TOPIC = "projects/demo/topics/records"
SUBSCRIPTION = "projects/demo/subscriptions/records"
ORDERED = PublisherOptions(enable_message_ordering=True)
KEYS_OF_A_PLAIN_FILE = 20
MAX_RECORDS = 100_000
TIMEOUT = 60.0

# One in this many records is slow, nacked, or raises (the last two at the first delivery only). The
# numbers are primes, so that no key gets all of them.
SLOW, GIVEN_BACK, RAISING = 41, 113, 173
SLOW_SECONDS = 0.05


@dataclass(frozen=True)
class Record:
    """A line of the file.

    Attributes:
        number: Number of the line.
        key: Its ordering key.
        line: Its text.
    """

    number: int
    key: str
    line: str


@dataclass
class Handled:
    """Observations of the callbacks. They run in parallel, so changes are made under the lock.

    Attributes:
        lock: Protects the other attributes.
        by_key: For each key, in the order of handling: the record's number, and whether it was
            acknowledged.
        seen: Numbers of the records that were delivered at least once.
        acknowledged: The line of each acknowledged record.
        outcomes: Number of deliveries for each outcome.
        threads: Names of the threads that ran callbacks.
        latencies: Seconds from publishing to each callback.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    by_key: dict[str, list[tuple[int, bool]]] = field(default_factory=lambda: defaultdict(list))
    seen: set[int] = field(default_factory=set)
    acknowledged: dict[int, str] = field(default_factory=dict)
    outcomes: Counter[str] = field(default_factory=Counter)
    threads: set[str] = field(default_factory=set)
    latencies: list[float] = field(default_factory=list)


def read_records(path: Path) -> list[Record]:
    """Return a file's records: airports keyed by state, or the lines of any file over all keys."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    if path == AIRPORTS:
        header, *lines = lines
        state = header.split(",").index("state")
        keys: Iterator[str] = (row[state] for row in csv.reader(lines))
    else:
        keys = (f"key-{number % KEYS_OF_A_PLAIN_FILE:02}" for number in range(len(lines)))
    numbered = enumerate(zip(keys, lines, strict=True))
    # Pub/Sub does not accept empty messages.
    return [Record(n, key, line) for n, (key, line) in numbered if line][:MAX_RECORDS]


class Handler:
    """The callback. It behaves like an unreliable real callback."""

    def __init__(self, total: int) -> None:
        self.handled = Handled()
        self.all_acknowledged = threading.Event()
        self._total = total

    def __call__(self, message: Message) -> None:
        """Ack the message, or at its first delivery perhaps nack it or raise."""
        number = int(message.attributes["number"])
        latency = (datetime.now(timezone.utc) - message.publish_time).total_seconds()
        if number % SLOW == 0:
            time.sleep(SLOW_SECONDS)
        outcome = self._note(number, message, latency)
        if outcome == "raised":
            raise RuntimeError(f"the callback refuses record {number} on purpose")
        if outcome == "given back":
            message.nack()
        else:
            message.ack()

    def _note(self, number: int, message: Message, latency: float) -> str:
        handled = self.handled
        with handled.lock:
            outcome = "acknowledged"
            if number not in handled.seen and number % GIVEN_BACK == 0:
                outcome = "given back"
            elif number not in handled.seen and number % RAISING == 0:
                outcome = "raised"
            handled.seen.add(number)
            handled.by_key[message.ordering_key].append((number, outcome == "acknowledged"))
            handled.outcomes[outcome] += 1
            handled.threads.add(threading.current_thread().name)
            handled.latencies.append(latency)
            if outcome == "acknowledged":
                handled.acknowledged[number] = message.data.decode()
            if len(handled.acknowledged) == self._total:
                self.all_acknowledged.set()
        return outcome


def publish(client: PublisherClient, records: list[Record], progress: Progress) -> None:
    """Publish the records in order; return when the broker has confirmed all of them."""
    task = progress.add_task("published", total=len(records))
    futures = [
        client.publish(TOPIC, record.line.encode(), record.key, number=str(record.number))
        for record in records
    ]
    for future in futures:
        future.result()
        progress.advance(task)


def run(records: list[Record], console: Console) -> bool:
    """Run the demo and print the results; return whether every check passed."""
    handler = Handler(len(records))
    # The SDK logs each callback that raises. These errors are intended, so they are not shown.
    logging.basicConfig(level=logging.WARNING)
    logging.getLogger("pullstream.subscriber").addFilter(
        lambda entry: "callback raised" not in entry.getMessage()
    )
    with (
        Emulator() as broker,
        PublisherClient(publisher_options=ORDERED, endpoint=broker.endpoint) as publisher,
        SubscriberClient(endpoint=broker.endpoint) as client,
    ):
        publisher.create_topic(name=TOPIC)
        client.create_subscription(
            request={"name": SUBSCRIPTION, "topic": TOPIC, "enable_message_ordering": True}
        )
        console.print(f"broker on {broker.endpoint}, {len(records):,} records to publish")
        progress = Progress(
            TextColumn("{task.description:>9}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
        )
        began = time.monotonic()
        future = client.subscribe(
            SUBSCRIPTION,
            handler,
            flow_control=FlowControl(max_messages=500),
            await_callbacks_on_shutdown=True,
        )
        publishing = threading.Thread(target=publish, args=(publisher, records, progress))
        with Live(progress, console=console, refresh_per_second=10):
            publishing.start()
            watch(handler, future, progress, len(records))
            publishing.join()
        seconds = time.monotonic() - began
        future.cancel()
        ended_well = future.result(timeout=TIMEOUT)
        left = broker.backlog(SUBSCRIPTION)
        pulled = client.pull(
            subscription=SUBSCRIPTION, max_messages=10, return_immediately=True
        ).received_messages
    console.print()
    report(handler.handled, seconds, console)
    return verify(records, handler.handled, left + len(pulled), ended_well, console)


def watch(handler: Handler, future: StreamingPullFuture, progress: Progress, total: int) -> None:
    """Show the progress of the callbacks until all are done or TIMEOUT seconds have passed."""
    task = progress.add_task("handled", total=total)
    deadline = time.monotonic() + TIMEOUT
    while not handler.all_acknowledged.wait(0.05):
        progress.update(task, completed=len(handler.handled.acknowledged))
        if future.done() or time.monotonic() > deadline:
            return
    progress.update(task, completed=total)


def report(handled: Handled, seconds: float, console: Console) -> None:
    """Print a table of outcomes, rate and latencies."""
    deliveries = sum(handled.outcomes.values())
    latencies = sorted(handled.latencies) or [0.0]
    table = Table(title="what happened", show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_row("deliveries handled", f"{deliveries:,}")
    for outcome in ("acknowledged", "given back", "raised"):
        table.add_row(f"  of these {outcome}", f"{handled.outcomes[outcome]:,}")
    table.add_row("ordering keys", f"{len(handled.by_key):,}")
    table.add_row("worker threads", f"{len(handled.threads):,}")
    table.add_row("time", f"{seconds:.2f} s")
    table.add_row("rate", f"{deliveries / seconds:,.0f} messages/s")
    table.add_row("publish to callback, median", f"{statistics.median(latencies) * 1000:,.1f} ms")
    table.add_row("publish to callback, p99", f"{percentile(latencies, 0.99) * 1000:,.1f} ms")
    console.print(table)


def percentile(ordered: list[float], share: float) -> float:
    """Return the value in an ascending list below which this share of the values lies."""
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def verify(
    records: list[Record], handled: Handled, left: int, ended_well: bool, console: Console
) -> bool:
    """Compare the observations with the guarantees, and print a line for each guarantee."""
    missing = [r for r in records if handled.acknowledged.get(r.number) != r.line]
    published: dict[str, list[int]] = defaultdict(list)
    for record in records:
        published[record.key].append(record.number)
    out_of_order = [
        key for key, history in handled.by_key.items() if not in_order(published[key], history)
    ]
    checks = [
        (f"every record handled and acknowledged, unchanged ({len(missing)} missing)", not missing),
        (f"every key in order ({len(out_of_order)} of {len(published)} not)", not out_of_order),
        (f"nothing left on the subscription ({left} messages)", left == 0),
        ("the subscription ended without an error", ended_well),
    ]
    for promise, kept in checks:
        console.print(f"[green]  ok  {promise}" if kept else f"[bold red]BROKEN {promise}")
    return all(kept for _, kept in checks)


def in_order(numbers: list[int], history: list[tuple[int, bool]]) -> bool:
    """Return whether no record of a key, whose records are `numbers`, was handled too early.

    A record may be handled after the one before it was acknowledged. After a failure, delivery of
    the key continues at the failed record or before it.
    """
    place = {number: index for index, number in enumerate(numbers)}
    may_come = 0
    for number, acknowledged in history:
        if place[number] > may_come:
            return False
        may_come = max(may_come, place[number] + 1) if acknowledged else place[number]
    return True


def main() -> int:
    """Run the demo on the given file; return the exit code."""
    parser = argparse.ArgumentParser(description="pullstream's demo")
    parser.add_argument("--file", type=Path, default=AIRPORTS, help="text file, a record per line")
    path = parser.parse_args().file
    try:
        records = read_records(path)
    except OSError as error:
        print(f"cannot read {path}: {error.strerror}", file=sys.stderr)
        return 1
    if not records:
        print(f"{path} has no records: every line is empty", file=sys.stderr)
        return 1
    return 0 if run(records, Console()) else 1


if __name__ == "__main__":
    sys.exit(main())
