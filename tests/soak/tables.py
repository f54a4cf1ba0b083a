"""`make soak`, its part on tables: an ingestion into a table whose processes are killed repeatedly.

    python -m tests.soak.tables --format delta --upserts --seconds 300 --seed 7

`pullstream ingest` writes a subscription to a table, in batches of half a second, while its driver,
its JVM, its executors and its Python workers are killed at random times. Another writer writes to
the same table, and processes of `pullstream compact` change it, of which a third is killed. A
folder of files is compacted between two processes of the job.

At the end every message must be in the table once, with --upserts the newest one of each key, and
every row of the other writer. Engines that do not use our libraries count them: Spark with the
format's own jars and polars, or psql. An engine that cannot be fetched is skipped by name, and
--require makes that a failure. Without --format and --upserts, everything runs. Exits with 1 if a
table is wrong.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table as View

from pullstream import SubscriberClient, TopicAdminClient
from pullstream_emulator import Emulator
from tests.subscriber.spark.postgresql import DRIVER, postgresql_server, server_programs

from .compactions import Compactions
from .ingestion import KINDS, Job, Place, kill
from .other_writer import FIRST, OtherWriter
from .table_counts import Count, counts

TOPIC = "projects/soak/topics/rows"
SUBSCRIPTION = "projects/soak/subscriptions/rows"

# Messages in each request of the publisher, and the seconds between two of them.
PUBLISHED = 20
PUBLISH_EVERY = 0.1

# A quarter of the kills comes within these seconds after the start of a driver, at any moment. The
# others come within a few seconds after its first acknowledgements, for which a busy machine needs
# a minute.
START = 12.0
AFTER_BATCH = 6.0
FIRST_BATCH = 60.0

# The number of keys of upserts.
KEYS = 500

APPENDS = ("parquet", "delta", "iceberg", "postgresql")
UPSERTS = ("delta", "iceberg", "postgresql")


@dataclass
class Result:
    """The result of a run.

    Attributes:
        title: The format, and whether with upserts.
        published: The number of messages.
        others: The number of rows of the other writer.
        kills: How often each kind of process was killed.
        compactions: How the compactions have ended.
        engines: The engines that have counted, or why they were skipped.
        faults: Descriptions of all faults.
    """

    title: str
    published: int = 0
    others: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    compactions: Counter[str] = field(default_factory=Counter)
    engines: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


class Soak:
    """One table, and everything that works on it.

    Args:
        place: The table.
        seconds: For how long processes are killed.
        dice: The only source of randomness.
        console: Where each kill is shown.
        upserts: Whether the table keeps one row for each key.
    """

    def __init__(
        self, place: Place, seconds: float, dice: random.Random, console: Console, *, upserts: bool
    ) -> None:
        self._place = place
        self._seconds = seconds
        self._dice = dice
        self._console = console
        self._upserts = upserts
        # A folder of files is compacted while nobody writes to it.
        self._alone = threading.Lock()
        self._other = OtherWriter(place, self._alone)
        self._compactions = Compactions(place, random.Random(dice.random()))
        self._kills: Counter[str] = Counter()

    def run(self, result: Result) -> None:
        """Run all failures, and complete the result."""
        with Emulator() as broker:
            with (
                TopicAdminClient(endpoint=broker.endpoint) as topics,
                SubscriberClient(endpoint=broker.endpoint) as client,
            ):
                topics.create_topic(name=TOPIC)
                client.create_subscription(name=SUBSCRIPTION, topic=TOPIC, ack_deadline_seconds=10)
            published = _Publisher(broker.endpoint)
            published.start()
            self._other.start()
            if self._place.is_lake:
                self._compactions.start()
            job = Job(self._place, broker.endpoint, SUBSCRIPTION, upserts=self._upserts)
            self._kill_repeatedly(job, published, broker)
            published.end()
            for _ in range(6):
                code = job.start("--available-now", "--batch-rows", "4000").wait(600)
                if code == 0 and not broker.backlog(SUBSCRIPTION):
                    break
                time.sleep(10)
            else:
                result.faults.append(
                    f"the last run has exit code {code}, and "
                    f"{broker.backlog(SUBSCRIPTION)} messages are not acknowledged"
                )
            self._other.end()
            self._compactions.end()
        if self._place.format == "parquet":
            # One that was killed may have left rows twice, for readers of the folder.
            self._compactions.compact(is_killed=False)
        result.published = published.count
        result.others = self._other.rows
        result.kills = self._kills
        result.compactions = self._compactions.outcomes
        result.faults += self._compactions.errors
        for count in counts(self._place):
            self._judge(count, published.count, result)
        if result.faults:
            self._console.print(job.tail(), markup=False)

    def _kill_repeatedly(self, job: Job, published: _Publisher, broker: Emulator) -> None:
        end = time.monotonic() + self._seconds
        kinds = list(KINDS)
        process = job.start()
        while time.monotonic() < end:
            if self._dice.random() < 1 / 4:
                time.sleep(self._dice.uniform(0, START))
            else:
                self._wait_for_batch(
                    process, lambda: published.count - broker.backlog(SUBSCRIPTION)
                )
                time.sleep(self._dice.uniform(0, AFTER_BATCH))
            kind = kinds[sum(self._kills.values()) % len(kinds)]
            if not kill(process, kind):
                # There is no such process yet, or no separate executor.
                kind = "driver"
                kill(process, kind)
            self._kills[kind] += 1
            if kind in ("driver", "JVM"):
                process.wait(60)
            if process.poll() is not None:
                if self._place.format == "parquet":
                    with self._alone:
                        self._compactions.compact(is_killed=self._dice.random() < 1 / 3)
                is_next = kinds[sum(self._kills.values()) % len(kinds)] == "executor"
                process = job.start(cluster=is_next or self._dice.random() < 1 / 3)
            self._console.print(
                f"{kind} killed; {published.count:,} published, "
                f"{broker.backlog(SUBSCRIPTION):,} left"
            )
        kill(process, "driver")

    def _wait_for_batch(
        self, process: subprocess.Popen[bytes], acknowledged: Callable[[], int]
    ) -> None:
        """Wait until a driver has acknowledged a batch, has ended, or is too slow."""
        before = acknowledged()
        deadline = time.monotonic() + FIRST_BATCH
        while acknowledged() <= before and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)

    def _judge(self, count: Count, published: int, result: Result) -> None:
        """Compare the rows of an engine with all written rows."""
        if count.ids is None:
            result.engines.append(f"{count.engine} skipped")
            self._console.print(f"{count.engine} was skipped: {count.why}", markup=False)
            return
        result.engines.append(count.engine)
        found = Counter(count.ids)
        # Of each key, the row with the greatest id.
        first = max(published - KEYS, 0) if self._upserts else 0
        own = {*range(first, published)}
        others = {*range(FIRST, FIRST + self._other.rows)}
        differences = {
            "missing": (own | others) - found.keys(),
            "without a message": found.keys() - (own | others),
            "twice": {id for id, times in found.items() if times > 1},
        }
        result.faults += [
            f"{count.engine}: {len(ids):,} {what}, such as {sorted(ids)[:10]}"
            for what, ids in differences.items()
            if ids
        ]


class _Publisher(threading.Thread):
    def __init__(self, endpoint: str) -> None:
        super().__init__(daemon=True)
        self._endpoint = endpoint
        self._ended = threading.Event()
        self.count = 0

    def run(self) -> None:
        with TopicAdminClient(endpoint=self._endpoint) as topics:
            while not self._ended.wait(PUBLISH_EVERY):
                ids = range(self.count, self.count + PUBLISHED)
                rows = [
                    {"id": one, "country": ("DE", "US", None)[one % 3], "key": one % KEYS}
                    for one in ids
                ]
                topics.publish(TOPIC, [{"data": json.dumps(row).encode()} for row in rows])
                self.count += PUBLISHED

    def end(self) -> None:
        self._ended.set()
        self.join()


@contextmanager
def a_place(format: str) -> Iterator[Place | None]:
    """Provide a folder, and a server if the format needs one; None without its programs."""
    with tempfile.TemporaryDirectory() as folder:
        if format != "postgresql":
            yield Place(Path(folder), format, None)
            return
        programs = server_programs()
        if programs is None or not DRIVER.exists():
            yield None
            return
        with postgresql_server(programs) as server:
            yield Place(Path(folder), format, server)


def run(format: str, seconds: float, seed: int, console: Console, *, upserts: bool) -> Result:
    """Run the soak of one table."""
    result = Result(f"{format}{', upserts' if upserts else ''}")
    # The same for this table in each run.
    dice = random.Random(f"{seed} {result.title}")
    with a_place(format) as place:
        if place is None:
            result.engines.append("no PostgreSQL, or no JDBC driver: skipped")
            return result
        try:
            Soak(place, seconds, dice, console, upserts=upserts).run(result)
        except Exception:
            # The other tables must run, too.
            result.faults.append(traceback.format_exc())
    return result


def show(results: Iterable[Result], seed: int, console: Console) -> None:
    """Print one line for each table."""
    view = View(
        *("table", "messages", "other rows", "killed", "compactions", "counted by", "result"),
        title=f"seed {seed}",
    )
    for result in results:
        view.add_row(
            result.title,
            f"{result.published:,}",
            f"{result.others:,}",
            _listed(result.kills),
            _listed(result.compactions),
            ", ".join(result.engines),
            "[red]wrong" if result.faults else "every row once",
        )
    console.print(view)


def _listed(numbers: Counter[str]) -> str:
    return ", ".join(f"{number} {what}" for what, number in sorted(numbers.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description="an ingestion that is killed again and again")
    parser.add_argument("--format", choices=APPENDS, action="append")
    parser.add_argument("--seconds", type=float, default=300.0, help="for each table")
    parser.add_argument("--upserts", action="store_true", help="keep one row for each key")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--require", action="store_true", help="fail if an engine is skipped")
    arguments = parser.parse_args()
    seed = random.randrange(10**6) if arguments.seed is None else arguments.seed
    # A line of the summary is as wide as it must be, also in a file.
    console = Console(width=None if sys.stdout.isatty() else 180)
    console.print(f"seed {seed}")
    formats = arguments.format or APPENDS
    appends = [] if arguments.upserts else [(one, False) for one in formats]
    upserts = [(one, True) for one in formats if one in UPSERTS]
    cases = appends if arguments.format and not arguments.upserts else [*appends, *upserts]
    results = []
    for format, is_upserts in cases:
        result = run(format, arguments.seconds, seed, console, upserts=is_upserts)
        results.append(result)
        if arguments.require:
            result.faults += [one for one in result.engines if one.endswith("skipped")]
        for fault in result.faults:
            console.print(f"{result.title}: {fault}", markup=False)
    show(results, seed, console)
    sys.exit(1 if any(result.faults for result in results) else 0)


if __name__ == "__main__":
    main()
