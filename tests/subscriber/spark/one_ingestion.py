"""A program that ingests some messages with Spark and reads them: `one_ingestion.py FOLDER`.

tests/quick_java.py archives the classes that it loads.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark import SparkContext

from pullstream import PublisherClient, SubscriberClient
from pullstream.spark import IngestJob, local_session, run_ingest
from pullstream.types import PubsubMessage
from pullstream_emulator import Emulator

TOPIC = "projects/p/topics/topic"
SUBSCRIPTION = "projects/p/subscriptions/subscription"


def main(folder: Path) -> int:
    """Return 0 if the table has all messages."""
    count = 200
    spark = local_session("local[2]")
    with (
        Emulator() as broker,
        PublisherClient(endpoint=broker.endpoint) as publisher,
        SubscriberClient(endpoint=broker.endpoint) as client,
    ):
        publisher.create_topic(name=TOPIC)
        client.create_subscription(request={"name": SUBSCRIPTION, "topic": TOPIC})
        messages = [PubsubMessage(data=b'{"id": %d}' % number) for number in range(count)]
        publisher.publish_many(TOPIC, messages).result()
        job = IngestJob(
            subscription=SUBSCRIPTION,
            to=str(folder / "table"),
            decode="json",
            schema="id BIGINT",
            available_now=True,
            options={"endpoint": broker.endpoint, "lingerMs": "100"},
        )
        run_ingest(job, spark=spark)
    rows = spark.read.parquet(str(folder / "table")).groupBy("id").count().collect()
    spark.stop()
    # Java ends when its input does, and then it writes the archive.
    java = SparkContext._gateway.proc  # type: ignore[union-attr]
    java.stdin.close()
    java.wait()
    return 0 if len(rows) == count else 1


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
