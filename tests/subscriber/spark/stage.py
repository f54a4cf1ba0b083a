"""The stage of the source's tests: a subscription in a broker, and queries that read it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pullstream import SubscriberClient, TopicAdminClient
from pullstream_emulator import Emulator

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from pullstream.spark import IngestReport

Store = Callable[["DataFrame", int], None]

TOPIC = "projects/p/topics/rows"
SUBSCRIPTION = "projects/p/subscriptions/rows"

# Both are shorter than the defaults, as everything runs on one machine.
QUICK = {"drainWaitMs": "300", "lingerMs": "50"}


@dataclass
class Sink:
    """A sink that is idempotent by batch id: the rows of a repeated batch replace the earlier ones.

    Attributes:
        before: Called with the number of a batch before it is stored.
        after: Called with the number of a batch after it is stored.
    """

    before: Callable[[int], None] = lambda batch: None
    after: Callable[[int], None] = lambda batch: None
    batches: dict[int, list[str]] = field(default_factory=dict)
    # For each repeated batch, whether it had the same rows in the same order.
    replays: list[bool] = field(default_factory=list)

    def __call__(self, rows: DataFrame, batch: int) -> None:
        self.before(batch)
        ids = [row.message_id for row in rows.select("message_id").collect()]
        if batch in self.batches:
            self.replays.append(ids == self.batches[batch])
        self.batches[batch] = ids
        self.after(batch)

    @property
    def ids(self) -> list[str]:
        return [one for ids in self.batches.values() for one in ids]


def subscribed(broker: Emulator) -> None:
    """Make the topic and its subscription."""
    with (
        TopicAdminClient(endpoint=broker.endpoint) as topics,
        SubscriberClient(endpoint=broker.endpoint) as client,
    ):
        topics.create_topic(name=TOPIC)
        client.create_subscription(name=SUBSCRIPTION, topic=TOPIC, ack_deadline_seconds=10)


def publish(broker: Emulator, count: int, **message: Any) -> list[str]:
    """Publish messages with their number as `data`, and return their ids."""
    with TopicAdminClient(endpoint=broker.endpoint) as topics:
        return [
            one
            for start in range(0, count, 1000)
            for one in topics.publish(
                TOPIC,
                [
                    {"data": str(number).encode(), **message}
                    for number in range(start, min(start + 1000, count))
                ],
            )
        ]


Ingest = Callable[..., "IngestReport"]


def ingest_into(folder: Path, spark: SparkSession, broker: Emulator, **defaults: Any) -> Ingest:
    """Return a function that runs an ingestion job on the subscription.

    Args:
        folder: The folder of the table.
        spark: The session.
        broker: The broker with the subscription.
        defaults: Arguments of the job. Arguments of the function replace them.
    """
    from pullstream.spark import IngestJob, run_ingest

    # Some tests fail on purpose, and py4j would log these failures as well.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)

    def run(
        stop: threading.Event | None = None,
        watch: Callable[[IngestReport], None] = lambda report: None,
        **arguments: Any,
    ) -> IngestReport:
        options = {"endpoint": broker.endpoint, **QUICK, **arguments.pop("options", {})}
        given = {"to": str(folder), **defaults, **arguments}
        job = IngestJob(subscription=SUBSCRIPTION, options=options, **given)
        return run_ingest(job, spark=spark, stop=stop, watch=watch)

    return run


class Stage:
    """A topic with a subscription, and queries on it that share a checkpoint and a spool."""

    format = "pubsub"

    def __init__(self, spark: SparkSession, broker: Emulator, folder: Path) -> None:
        self.spark = spark
        self.broker = broker
        self.folder = folder
        subscribed(broker)

    @property
    def spool(self) -> Path:
        return self.folder / "spool"

    def options(self, **options: str) -> dict[str, str]:
        return {
            "subscription": SUBSCRIPTION,
            "endpoint": self.broker.endpoint,
            "spoolDir": str(self.spool),
            **QUICK,
            **options,
        }

    def read(self, **options: str) -> DataFrame:
        """Return the stream."""
        reader = self.spark.readStream.format(self.format)
        return reader.options(**self.options(**options)).load()

    def writer(self, sink: Store, **options: str) -> DataStreamWriter:
        """Return the query, not begun."""
        return (
            self.read(**options)
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(self.folder / "checkpoint"))
        )

    def start(self, sink: Store, **options: str) -> StreamingQuery:
        """Return a running query."""
        return self.writer(sink, **options).start()

    def drain(self, sink: Store, **options: str) -> StreamingQuery:
        """Return a query that has read the whole backlog."""
        query = self.writer(sink, **options).trigger(availableNow=True).start()
        query.awaitTermination()
        return query
