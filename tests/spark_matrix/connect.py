"""Source, batch read and sink in a session of Spark Connect.

    python connect.py ENDPOINT STREAM_SUBSCRIPTION READ_SUBSCRIPTION TOPIC FOLDER

Prints the number of rows of a streaming query and of a batch read, as JSON. The rows of the query
are published to the topic.
"""

from __future__ import annotations

import json
import os
import sys

from pyspark.sql import SparkSession

from pullstream.spark import register
from pullstream.spark.local.java import ensure_java


def main() -> None:
    endpoint, streamed, read, topic, folder = sys.argv[1:]
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    ensure_java()
    # Starts a server on this machine, with two cores.
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    register(spark)
    options = {"endpoint": endpoint, "drainWaitMs": "500"}
    rows = spark.readStream.format("pubsub").options(**options)
    rows = rows.options(subscription=streamed, spoolDir=f"{folder}/spool")
    writer = rows.load().writeStream.format("parquet").option("path", f"{folder}/rows")
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
    writer.start().awaitTermination()
    table = spark.read.parquet(f"{folder}/rows")
    sink = {"topic": topic, "endpoint": endpoint}
    table.select("data").write.format("pubsub").options(**sink).mode("append").save()
    batch = spark.read.format("pubsub").options(**options)
    batch = batch.options(subscription=read, spoolDir=f"{folder}/read")
    print(json.dumps([table.count(), batch.load().count()]))
    spark.stop()


if __name__ == "__main__":
    main()
