"""`make soak`, its last part: an ingestion into a table whose processes are killed repeatedly.

    python -m tests.soak.tables --format delta --seconds 300 --seed 7

`pullstream ingest` writes a subscription to a table, in batches of half a second, while its driver,
its JVM and its Python workers are killed at random times, and another writer commits batches of its
own to the same table. At the end every message must be in the table once, and every batch of the
other writer, counted by an engine that does not use our code. Exits with 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import TableNotFoundError
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table as PyIcebergTable
from rich.console import Console

from pullstream import SubscriberClient, TopicAdminClient
from pullstream.spark.errors import IngestError
from pullstream.spark.tables.batch import BatchName
from pullstream.spark.tables.delta import DeltaLakeTable
from pullstream.spark.tables.iceberg import IcebergTable
from pullstream.spark.tables.maintenance import TableLocation
from pullstream.spark.tables.partitions import PartitionExpression, partition_fields
from pullstream.spark.tables.table import Table
from pullstream_emulator import Emulator
from tests.subscriber.spark.processes import descendants

TOPIC = "projects/soak/topics/rows"
SUBSCRIPTION = "projects/soak/subscriptions/rows"
SCHEMA = "id BIGINT NOT NULL, country STRING, key INT"

# Messages in each request of the publisher, and the seconds between two of them.
PUBLISHED = 50
PUBLISH_EVERY = 0.1

# The seconds that a driver lives. Its first batch comes after about ten.
SHORTEST, LONGEST = 6.0, 25.0

# Seconds between two compactions, and the number of keys of upserts.
COMPACT_EVERY = 7.0
KEYS = 500

# Ids of the other writer begin here.
OTHER = 1_000_000_000


class Compactor(threading.Thread):
    """Compacts the table every few seconds, as `pullstream compact` does."""

    def __init__(self, folder: Path, format: str) -> None:
        super().__init__(daemon=True)
        self._table = TableLocation(folder=str(folder / "rows"), format=format)
        self._ended = threading.Event()
        self.landed = 0
        self.errors: list[str] = []

    def run(self) -> None:
        while not self._ended.wait(COMPACT_EVERY):
            try:
                self.landed += self._table.opened().compact().added
            except IngestError as error:
                # Before the job has created the table; or other writers were faster three times.
                self.errors.append(str(error))

    def end(self) -> None:
        self._ended.set()
        self.join()


class Job:
    """One process of `pullstream ingest` after the other, on the same table and state."""

    def __init__(self, folder: Path, format: str, endpoint: str, *, upserts: bool) -> None:
        self._command = [
            *(sys.executable, "-m", "pullstream", "ingest", "--json"),
            *("--endpoint", endpoint, "--subscription", SUBSCRIPTION),
            *("--to", str(folder / "rows"), "--format", format, "--state", str(folder / "state")),
            *("--decode", "json", "--schema", SCHEMA, "--partition-by", "country"),
            *("--batch-rows", "400", "--option", "leaseSeconds=10", "--option", "lingerMs=300"),
        ]
        if upserts:
            self._command += ["--merge-on", "key", "--latest-by", "id"]
        self._log = folder / "jobs.log"

    def start(self, *more: str) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen([*self._command, *more], stdout=log, stderr=log)

    def tail(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]


def kill(process: subprocess.Popen[bytes], kind: str) -> None:
    """Kill the driver, its JVM or one of its Python workers."""
    family = descendants(process.pid)
    if kind == "driver":
        process.kill()
        process.wait()
    else:
        wanted = "SparkSubmit" if kind == "JVM" else "pyspark.daemon"
        for pid in family:
            if wanted in _command_of(pid):
                _kill(pid)
                break
    if kind != "worker":
        for pid in family:
            _wait_for_end(pid)


def _command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _wait_for_end(pid: int) -> None:
    """Wait until a process has ended by itself, or kill it after ten seconds."""
    deadline = time.monotonic() + 10
    while _command_of(pid):
        if time.monotonic() > deadline:
            _kill(pid)
        time.sleep(0.05)


class OtherWriter(threading.Thread):
    """Commits batches of another source to the table, as a second job would."""

    def __init__(self, folder: Path, format: str) -> None:
        super().__init__(daemon=True)
        self._folder = str(folder / "rows")
        self._format = format
        self._ended = threading.Event()
        self._schema = pa.schema([])
        self.rows = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._ended.wait(1.0):
                table = self._open()
                if table is not None:
                    self._commit(table)
        except BaseException as error:
            self.error = error

    def end(self) -> None:
        self._ended.set()
        self.join()
        if self.error is not None:
            raise self.error

    def _open(self) -> Table | None:
        """Return the table, which the job creates, or None before that."""
        schema = columns_of(self._folder, self._format)
        if schema is None:
            return None
        self._schema = schema
        fields = partition_fields([PartitionExpression.parse("country")], schema)
        kind = DeltaLakeTable if self._format == "delta" else IcebergTable
        table: Table = kind(self._folder, fields)
        table.open(schema)
        return table

    def _commit(self, table: Table) -> None:
        batch = BatchName("e" * 32, self.rows)
        row = {
            "id": OTHER + self.rows,
            "country": "XX",
            "pubsub_message_id": "other",
            "pubsub_batch": "other",
            "pubsub_publish_time": datetime(2026, 1, 1, tzinfo=timezone.utc),
        }
        rows = pa.Table.from_pylist([row], schema=self._schema)
        files = table.files_to_write(str(batch)).write(rows.to_batches(), "0-0")
        if table.commit(files, batch):
            self.rows += 1


def columns_of(folder: str, format: str) -> pa.Schema | None:
    """Return the columns of a table; None if it does not exist."""
    if format == "delta":
        try:
            return pa.schema(DeltaTable(folder).schema().to_arrow())
        except TableNotFoundError:
            return None
    try:
        table = iceberg_table(Path(folder))
    except NoSuchTableError:
        return None
    return schema_to_pyarrow(table.schema(), include_field_ids=False)


def iceberg_table(folder: Path) -> PyIcebergTable:
    uri = f"sqlite:///{folder.parent}/catalog.db"
    return load_catalog("default", type="sql", uri=uri).load_table(("default", folder.name))


def ids_in(folder: Path, format: str) -> Counter[int]:
    """Return how often each id is in the table."""
    path = folder / "rows"
    if format == "delta":
        engine = QueryBuilder().register("t", DeltaTable(str(path)))
        rows = pa.table(engine.execute("SELECT id FROM t").read_all())
    elif format == "iceberg":
        rows = iceberg_table(path).scan(selected_fields=("id",)).to_arrow()
    else:
        listed = [
            str(path / name)
            for batch in (path / "_batches").glob("*.json")
            for name in json.loads(batch.read_text())["files"]
        ]
        rows = ds.dataset(listed, format=format).to_table(columns=["id"])
    return Counter(rows.column("id").to_pylist())


def run(
    folder: Path,
    format: str,
    seconds: float,
    dice: random.Random,
    console: Console,
    *,
    upserts: bool,
) -> bool:
    """Run all failures, and return whether the table has what it must have."""
    is_lake = format in ("delta", "iceberg")
    with Emulator() as broker:
        with (
            TopicAdminClient(endpoint=broker.endpoint) as topics,
            SubscriberClient(endpoint=broker.endpoint) as client,
        ):
            topics.create_topic(name=TOPIC)
            client.create_subscription(name=SUBSCRIPTION, topic=TOPIC, ack_deadline_seconds=10)
        published = _Publisher(broker.endpoint)
        published.start()
        other, compactor = OtherWriter(folder, format), Compactor(folder, format)
        if is_lake:
            compactor.start()
        if is_lake and not upserts:
            # A job that appends must not write to a table of upserts.
            other.start()
        job = Job(folder, format, broker.endpoint, upserts=upserts)
        kinds = ["driver", "worker", "JVM"]
        end = time.monotonic() + seconds
        kills: Counter[str] = Counter()
        process = job.start()
        while time.monotonic() < end:
            time.sleep(dice.uniform(SHORTEST, LONGEST))
            kind = kinds[sum(kills.values()) % 3]
            kill(process, kind)
            kills[kind] += 1
            if process.poll() is None and kind != "worker":
                process.wait(60)
            if process.poll() is not None:
                process = job.start()
            console.print(
                f"{kind} killed; {published.count:,} published, "
                f"{broker.backlog(SUBSCRIPTION):,} left"
            )
        kill(process, "driver")
        published.end()
        for _ in range(6):
            code = job.start("--available-now").wait(300)
            if code == 0 and not broker.backlog(SUBSCRIPTION):
                break
            time.sleep(10)
        for thread in (other, compactor):
            if thread.ident is not None:
                thread.end()
        left = broker.backlog(SUBSCRIPTION)
    found = ids_in(folder, format)
    own = {one: count for one, count in found.items() if one < OTHER}
    # Of each key, the row with the greatest id.
    expected = {
        one for one in range(published.count) if not upserts or one >= published.count - KEYS
    }
    lost = len(expected ^ set(own))
    twice = sum(count - 1 for count in found.values())
    others = len(found) - len(own)
    console.print(
        f"{format}{', upserts' if upserts else ''}: {published.count:,} published, "
        f"{len(own):,} in the table, {lost} lost or wrong, "
        f"{twice} twice, {left} not acknowledged; {others} of {other.rows} rows of the other "
        f"writer; {compactor.landed} files made by compactions, {len(compactor.errors)} of which "
        f"did not land; killed: {dict(kills)}"
    )
    is_right = not (lost or twice or left) and others == other.rows
    if not is_right:
        console.print(job.tail())
    return is_right


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


def main() -> None:
    parser = argparse.ArgumentParser(description="an ingestion that is killed again and again")
    parser.add_argument(
        "--format", choices=["parquet", "json", "delta", "iceberg"], action="append"
    )
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--upserts", action="store_true", help="keep one row for each key")
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    seed = random.randrange(10**6) if arguments.seed is None else arguments.seed
    console = Console()
    console.print(f"seed {seed}")
    dice = random.Random(seed)
    is_right = True
    for format in arguments.format or ["parquet", "delta", "iceberg"]:
        with tempfile.TemporaryDirectory() as folder:
            is_right &= run(
                Path(folder),
                format,
                arguments.seconds,
                dice,
                console,
                upserts=arguments.upserts,
            )
    sys.exit(0 if is_right else 1)


if __name__ == "__main__":
    main()
