"""One measurement of Spark on a subscription, or of the same work without it.

    python -m tests.bench.spark_client stream localhost:PORT --sink noop --rows 10000 --messages N

stream: the source, into a sink; messages that were published before are read to the end.
files: a stream of one file for each batch, with the same rows.
bare: a source in Python that only hands the same rows to Spark.
loop: pulls of the official client, createDataFrame, write: the work without a source.
convert: messages into Arrow, without Spark.
job: the whole of `run_ingest`, after --earlier commits of others; counts the stored rows.
upsert: batches of --rows changes into a table of --messages rows.
commits: small batches into a table, without Spark.
freshness: the age of rows when `run_ingest` has committed them.
restart: the time until a killed query reads again.
receivers: the CPU of receivers outside of Spark, without Spark.
cluster: `pullstream ingest --master` on a cluster of one worker.

Prints its figures as JSON. The first batch, in which everything is started, is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.subscriber.spark.processes import cpu_seconds, descendants, source_workers

from .client import SUBSCRIPTION, Figures
from .commits import commits
from .spark_cluster import cluster
from .spark_delays import freshness, restart
from .spark_receivers import receivers
from .upserts import upsert

NAME = SUBSCRIPTION.format(0)
SIZE = 100
ATTRIBUTES = {"kind": "order", "region": "eu-west"}
QUICK = {"drainWaitMs": "500"}
# The source, and the message ids, of commits that a table has before a job.
EARLIER = "earlier"
# The seconds between two looks at the progress, and the looks between two searches for the source
# worker.
LOOK_EVERY = 0.2
SEARCH_EVERY = 20


def received(count: int) -> list[pubsub.ReceivedMessage]:
    """Return messages in their encoded form."""
    message = pubsub.PubsubMessage(data=b"x" * SIZE, attributes=ATTRIBUTES)
    message.publish_time.GetCurrentTime()
    return [
        pubsub.ReceivedMessage(
            ack_id=f"projects/bench/{number}",
            message=pubsub.PubsubMessage.FromString(
                message.SerializeToString()
                + pubsub.PubsubMessage(message_id=str(number)).SerializeToString()
            ),
        )
        for number in range(count)
    ]


def convert(arguments: argparse.Namespace) -> Figures:
    from pullstream.columns.record_batch import to_batch
    from pullstream.message import ResponseBatch, encoded_of
    from pullstream.message_fields import Columns
    from tests.subscriber.streaming.fakes import RecordingSettlementSink

    # Decoded again each time, as a response is, because messages that were read before are faster.
    whole = pubsub.StreamingPullResponse(received_messages=received(arguments.rows))
    encoded = whole.SerializeToString()
    rates = []
    for _ in range(50):
        response = pubsub.StreamingPullResponse.FromString(encoded)
        messages = ResponseBatch(RecordingSettlementSink(), 0.0, 0, response).messages()
        began = time.perf_counter()
        to_batch(Columns(encoded_of(messages)))
        rates.append(len(messages) / (time.perf_counter() - began))
    return {"rows": statistics.median(rates)}


class QueryCpu:
    """The last known CPU time of the processes of a query, some of which end with it.

    Args:
        broker: The broker's process, if there is one.
    """

    def __init__(self, broker: int | None = None) -> None:
        self._broker = set() if broker is None else {broker}
        self._sources: set[int] = set()
        self._seconds: dict[int, float] = {}
        self._looks = 0
        # When the first batch was over: its rows, and the CPU time of broker and executors.
        self._first: tuple[int, float, float] | None = None

    def look(self, rows: int = 0) -> None:
        """Look at the processes, after some rows of the query."""
        # A search among all processes takes milliseconds away from the measured ones.
        if self._looks % SEARCH_EVERY == 0:
            self._sources |= source_workers()
            found = {*descendants(os.getpid()), *self._sources, *self._broker}
            self._seconds = {**dict.fromkeys(found, 0.0), **self._seconds}
        self._looks += 1
        for pid in self._seconds:
            self._seconds[pid] = max(cpu_seconds(pid), self._seconds[pid])
        if rows and self._first is None:
            self._first = (rows, self._sum(self._broker), self._sum(self._executors))

    @property
    def has_first_batch(self) -> bool:
        return self._first is not None

    def per_row(self, rows: int) -> Figures:
        """Return the CPU of the source for a row, and of the others for rows after the first batch.

        In the first batch, Java starts.
        """
        figures = {}
        if self._sources:
            figures["worker_micros"] = self._sum(self._sources) / rows * 1e6
        if self._first is not None and self._first[0] < rows:
            counted, broker, executors = self._first
            since = rows - counted
            figures["executor_micros"] = (self._sum(self._executors) - executors) / since * 1e6
            if self._broker:
                figures["broker_micros"] = (self._sum(self._broker) - broker) / since * 1e6
        return figures

    @property
    def _executors(self) -> set[int]:
        """Java, which is also the driver in local mode, and its Python workers."""
        return set(self._seconds) - self._sources - self._broker

    def _sum(self, pids: Iterable[int]) -> float:
        return sum(self._seconds[pid] for pid in pids)


def by_batch(query: Any) -> Figures:
    """Return the figures of the batches after the first."""
    later = [one for one in query.recentProgress if one.numInputRows][1:]
    if not later:
        sys.exit("there were too few batches to measure")
    millis = [one.durationMs["triggerExecution"] for one in later]
    rows = sum(one.numInputRows for one in later)
    return {"rows": rows / sum(millis) * 1e3, "batch_ms": statistics.median(millis)}


@contextmanager
def session() -> Iterator[Any]:
    from pullstream.spark import local_session

    config = {"spark.sql.streaming.numRecentProgressUpdates": "100000"}
    spark = local_session("local[2]", config=config)
    try:
        yield spark
    finally:
        spark.stop()


def run(reader: Any, arguments: argparse.Namespace, folder: Path) -> Figures:
    """Run a query of the reader to its end."""
    writer = reader.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
    if arguments.sink == "noop":
        writer = writer.format("noop")
    else:
        writer = writer.format("parquet").option("path", str(folder / "table"))
    query = writer.trigger(availableNow=True).start()
    cpu = QueryCpu(arguments.broker_pid)
    while not query.awaitTermination(LOOK_EVERY):
        # To read the progress takes longer with each batch.
        cpu.look(
            0 if cpu.has_first_batch else sum(one.numInputRows for one in query.recentProgress)
        )
    return {**by_batch(query), **cpu.per_row(arguments.messages)}


def stream(arguments: argparse.Namespace) -> Figures:
    with session() as spark, TemporaryDirectory() as name:
        folder = Path(name)
        options = {
            "subscription": NAME,
            "endpoint": arguments.endpoint,
            "spoolDir": str(folder / "spool"),
            "maxMessagesPerTrigger": str(arguments.rows),
            **QUICK,
        }
        reader = spark.readStream.format("pubsub").options(**options).load()
        return run(reader, arguments, folder)


def files(arguments: argparse.Namespace) -> Figures:
    import pyarrow as pa
    from pyarrow import parquet

    from pullstream.columns.record_batch import to_batch
    from pullstream.message_fields import Columns

    with session() as spark, TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "rows").mkdir()
        rows = [one.SerializeToString() for one in received(arguments.rows)]
        batch = to_batch(Columns(rows))
        table = pa.Table.from_batches([batch])
        for number in range(arguments.messages // arguments.rows):
            parquet.write_table(table, folder / "rows" / f"{number:06}.parquet")
        reader = (
            spark.readStream.format("parquet")
            .schema(spark.read.parquet(str(folder / "rows")).schema)
            .option("maxFilesPerTrigger", "1")
            .load(str(folder / "rows"))
        )
        return run(reader, arguments, folder)


def bare(arguments: argparse.Namespace) -> Figures:
    from pullstream.columns.record_batch import to_batch
    from pullstream.message_fields import Columns
    from pullstream.spark.protocol.encoding import encode

    from .spark_bare import BareSource

    with session() as spark, TemporaryDirectory() as name:
        path = Path(name) / "rows.arrow"
        rows = [one.SerializeToString() for one in received(arguments.rows)]
        path.write_bytes(encode(to_batch(Columns(rows))))
        spark.dataSource.register(BareSource)
        reader = spark.readStream.format("bare").option("path", str(path))
        reader = reader.option("batches", str(arguments.messages // arguments.rows))
        return run(reader.load(), arguments, Path(name))


def loop(arguments: argparse.Namespace) -> Figures:
    """Pull until there are enough messages, then make a DataFrame, write it, and acknowledge."""
    os.environ["PUBSUB_EMULATOR_HOST"] = arguments.endpoint
    from google.cloud import pubsub_v1

    with session() as spark, TemporaryDirectory() as folder:
        client = pubsub_v1.SubscriberClient()
        times: list[float] = []
        taken = 0
        while taken < arguments.messages:
            began = time.monotonic()
            pulled: list[Any] = []
            while len(pulled) < min(arguments.rows, arguments.messages - taken):
                response = client.pull(subscription=NAME, max_messages=1000)
                pulled += response.received_messages
            rows = [
                (one.message.message_id, one.message.data, dict(one.message.attributes))
                for one in pulled
            ]
            frame = spark.createDataFrame(
                rows, "message_id STRING, data BINARY, attributes MAP<STRING, STRING>"
            )
            frame.write.mode("append").parquet(f"{folder}/table")
            for start in range(0, len(pulled), 1000):
                ids = [one.ack_id for one in pulled[start : start + 1000]]
                client.acknowledge(subscription=NAME, ack_ids=ids)
            taken += len(pulled)
            times.append(time.monotonic() - began)
        later = times[1:]
        return {
            "rows": (taken - arguments.rows) / sum(later),
            "batch_ms": statistics.median(later) * 1e3,
        }


def job(arguments: argparse.Namespace) -> Figures:
    from pullstream.spark import IngestJob, run_ingest

    with session() as spark, TemporaryDirectory() as name:
        cpu = QueryCpu()
        options = {"endpoint": arguments.endpoint, **QUICK}
        options["maxMessagesPerTrigger"] = str(arguments.rows)
        table = str(Path(name) / "table")
        work = IngestJob(
            subscription=NAME,
            to=table,
            format=arguments.sink,
            available_now=True,
            options=options,
        )
        age(work, arguments.earlier)
        seen: list[Any] = []

        def watch(report: Any) -> None:
            cpu.look()
            seen.append(report)

        report = run_ingest(work, spark=spark, watch=watch)
        first = next(one for one in seen if one.totals.rows)
        rows = report.totals.rows - first.totals.rows
        ids = [one for one in ids_in(table, arguments.sink) if one != EARLIER]
        seconds = report.seconds - first.seconds
        return {
            "rows": rows / seconds,
            "batch_ms": seconds / (report.totals.batches - first.totals.batches) * 1e3,
            "miscounted": abs(len(ids) - arguments.messages)
            + abs(len(set(ids)) - arguments.messages),
            **cpu.per_row(report.totals.rows),
        }


def age(work: Any, commits: int) -> None:
    """Commit batches of one row, of another source, to the table of a job."""
    import pyarrow as pa

    from pullstream.spark.ingest.columns import arrow_schema, message_schema
    from pullstream.spark.tables.batch import BatchName
    from pullstream.spark.tables.delta import DeltaLakeTable
    from pullstream.spark.tables.file_table import FileTable
    from pullstream.spark.tables.iceberg import IcebergTable

    if not commits:
        return
    decoding = work.decoding()
    schema = arrow_schema(decoding.columns(message_schema(work)), decoding.required)
    kinds: dict[str, Any] = {"delta": DeltaLakeTable, "iceberg": IcebergTable, "parquet": FileTable}
    table = kinds[work.format](work.to)
    table.open(schema)
    row = {"message_id": EARLIER, "publish_time": datetime.now(timezone.utc)}
    rows = pa.Table.from_pylist([row], schema=schema)
    for number in range(commits):
        batch = BatchName(EARLIER, number)
        written = table.files_to_write(str(batch)).write(rows.to_batches(), "0-0")
        table.commit(written, batch)


def ids_in(table: str, format: str) -> list[str]:
    """Return the message ids in a table."""
    rows: Any
    match format:
        case "delta":
            from deltalake import DeltaTable

            rows = DeltaTable(table).to_pyarrow_dataset().to_table(columns=["message_id"])
        case "iceberg":
            from pyiceberg.catalog import load_catalog

            folder, _, name = table.rpartition("/")
            catalog = load_catalog("default", type="sql", uri=f"sqlite:///{folder}/catalog.db")
            scan = catalog.load_table(("default", name)).scan(selected_fields=("message_id",))
            rows = scan.to_arrow()
        case _:
            import pyarrow.dataset as ds

            files = ds.dataset(table, exclude_invalid_files=True)
            rows = files.to_table(columns=["message_id"])
    return list(rows.column("message_id").to_pylist())


MODES: dict[str, Callable[[argparse.Namespace], Figures]] = {
    "stream": stream,
    "files": files,
    "bare": bare,
    "loop": loop,
    "convert": convert,
    "job": job,
    "upsert": upsert,
    "commits": commits,
    "freshness": freshness,
    "restart": restart,
    "receivers": receivers,
    "cluster": cluster,
}


SINKS = ("noop", "parquet", "delta", "iceberg", "files", "source")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("endpoint", nargs="?", default="")
    parser.add_argument("--sink", choices=SINKS, default="noop")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--messages", type=int, default=0)
    parser.add_argument("--earlier", type=int, default=0)
    parser.add_argument("--receivers", type=int, default=1)
    parser.add_argument("--tuned", action="store_true")
    parser.add_argument("--broker-pid", type=int, help="the process of the broker")
    arguments = parser.parse_args()
    print(json.dumps(MODES[arguments.mode](arguments)), flush=True)


if __name__ == "__main__":
    main()
