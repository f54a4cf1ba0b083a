"""One measurement of Spark on a subscription, or of the same work without it.

    python -m tests.bench.spark_client stream localhost:PORT --sink noop --rows 10000 --messages N

stream: the source, into a sink; messages that were published before are read to the end.
files: a stream of one file for each batch, with the same rows.
loop: pulls of the official client, createDataFrame, write: the work without a source.
convert: messages into Arrow, without Spark.
job: the whole of `run_ingest`; counts the stored rows.
upsert: batches of --rows changes into a table of --messages rows.

Prints its figures as JSON. The first batch, in which everything is started, is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pullstream_protocol.messages import pubsub_pb2 as pubsub
from tests.subscriber.spark.processes import source_workers

from .client import SUBSCRIPTION, Figures
from .upserts import upsert

NAME = SUBSCRIPTION.format(0)
SIZE = 100
ATTRIBUTES = {"kind": "order", "region": "eu-west"}
QUICK = {"drainWaitMs": "500"}
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
    from pullstream.message import ResponseBatch, encoded_of
    from pullstream.spark.rows.columns import Columns
    from pullstream.spark.rows.rows import to_batch
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


class WorkerCpu:
    """The last known CPU time of the source worker, which ends with its query."""

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}
        self._looks = 0

    def look(self) -> None:
        # A search among all processes takes milliseconds away from the measured ones.
        if self._looks % SEARCH_EVERY == 0:
            self._seconds = {**dict.fromkeys(source_workers(), 0.0), **self._seconds}
        self._looks += 1
        for pid in self._seconds:
            self._seconds[pid] = max(_cpu_seconds(pid), self._seconds[pid])

    def per_row(self, rows: int) -> Figures:
        if not self._seconds:
            return {}
        return {"worker_micros": sum(self._seconds.values()) / rows * 1e6}


def by_batch(query: Any) -> Figures:
    """Return the figures of the batches after the first."""
    later = [one for one in query.recentProgress if one.numInputRows][1:]
    if not later:
        sys.exit("there were too few batches to measure")
    millis = [one.durationMs["triggerExecution"] for one in later]
    rows = sum(one.numInputRows for one in later)
    return {"rows": rows / sum(millis) * 1e3, "batch_ms": statistics.median(millis)}


def _cpu_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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
    worker = WorkerCpu()
    while not query.awaitTermination(LOOK_EVERY):
        worker.look()
    return {**by_batch(query), **worker.per_row(arguments.messages)}


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

    from pullstream.spark.rows.columns import Columns
    from pullstream.spark.rows.rows import to_batch

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
        worker = WorkerCpu()
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
        seen: list[Any] = []

        def watch(report: Any) -> None:
            worker.look()
            seen.append(report)

        report = run_ingest(work, spark=spark, watch=watch)
        first = next(one for one in seen if one.totals.rows)
        rows = report.totals.rows - first.totals.rows
        ids = ids_in(table, arguments.sink)
        seconds = report.seconds - first.seconds
        return {
            "rows": rows / seconds,
            "batch_ms": seconds / (report.totals.batches - first.totals.batches) * 1e3,
            "miscounted": abs(len(ids) - arguments.messages)
            + abs(len(set(ids)) - arguments.messages),
            **worker.per_row(report.totals.rows),
        }


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
    "loop": loop,
    "convert": convert,
    "job": job,
    "upsert": upsert,
}


SINKS = ("noop", "parquet", "delta", "iceberg")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("endpoint", nargs="?", default="")
    parser.add_argument("--sink", choices=SINKS, default="noop")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--messages", type=int, default=0)
    arguments = parser.parse_args()
    print(json.dumps(MODES[arguments.mode](arguments)), flush=True)


if __name__ == "__main__":
    main()
