"""Copies messages with the oldest PySpark for batches: by a batch read, and by both sinks.

    python batches.py ENDPOINT SUBSCRIPTION TOPIC STREAM_TOPIC FOLDER

The rows of a batch read are published to a topic by `write`, stored in a folder, and published from
there to another topic by `writeStream`. Prints the number of rows, and the error of a stream of the
subscription.
"""

from __future__ import annotations

import json
import sys

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pullstream.spark import BatchRead, local_session


def main() -> None:
    endpoint, subscription, topic, stream_topic, folder = sys.argv[1:]
    spark = local_session("local[2]")
    read = BatchRead(
        subscription=subscription, endpoint=endpoint, spoolDir=f"{folder}/read", drainWaitMs=300
    )
    rows = read.load(spark)
    data = rows.select("data")
    sink = {"topic": topic, "endpoint": endpoint}
    data.write.format("pubsub").options(**sink).mode("append").save()
    data.write.parquet(f"{folder}/rows")
    acked = read.ack()
    stream = spark.readStream.schema(data.schema).parquet(f"{folder}/rows")
    writer = stream.writeStream.format("pubsub").options(**{**sink, "topic": stream_topic})
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
    writer.start().awaitTermination()
    print(json.dumps({"spark": spark.version, "acked": acked, "stream": refusal(spark, folder)}))
    spark.stop()


def refusal(spark: SparkSession, folder: str) -> str:
    """Return the error of a stream of a subscription."""
    try:
        reader = spark.readStream.format("pubsub")
        query = (
            reader.option("subscription", "projects/p/subscriptions/s")
            .option("spoolDir", f"{folder}/spool")
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", f"{folder}/refused")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    except PySparkException as error:
        return str(error)
    return ""


if __name__ == "__main__":
    main()
