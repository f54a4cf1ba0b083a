"""A driver whose executors do not see its disk: everything that they share is in a bucket.

    python apart_job.py MASTER ENDPOINT FOLDER STORAGE SUBSCRIPTION ...

Prints for each of three subscriptions the message ids that have arrived, as JSON: by a pipeline
with its spool in the bucket, by a pipeline with receivers on the executors, and by an ingestion job
into a table in the bucket, with its spool on the driver's disk. Before that, it prints whether an
executor sees a file of the driver.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

from pyspark.sql import DataFrame

from pullstream.spark import IngestJob, local_session, receivers, register, run_ingest

master, endpoint, place, storage_text, piped, received, ingested = sys.argv[1:]
folder, storage = Path(place), json.loads(storage_text)
options = {
    "endpoint": endpoint,
    "drainWaitMs": "500",
    "lingerMs": "50",
    **{f"storage.{name}": value for name, value in storage.items()},
}
spark = local_session(
    master,
    config={
        # Java takes them for the driver only.
        "spark.executor.extraJavaOptions": os.environ["SPARK_SUBMIT_OPTS"],
        "spark.log.level": "ERROR",
    },
)
file = folder / "file"
file.touch()
seen = spark.sparkContext.parallelize(range(2), 2).map(lambda _: file.exists()).collect()
print(json.dumps(any(seen)))
register(spark)


def arrived(source: dict[str, str], name: str, count: int) -> list[str]:
    """Run a query until it has this number of rows, and return their ids."""
    ids: list[str] = []
    enough = threading.Event()

    def take(rows: DataFrame, number: int) -> None:
        ids.extend(row.message_id for row in rows.select("message_id").collect())
        if len(ids) >= count:
            enough.set()

    writer = spark.readStream.format("pubsub").options(**source).load().writeStream
    query = writer.foreachBatch(take).option("checkpointLocation", (folder / name).as_uri()).start()
    while query.isActive and not enough.wait(0.1):
        pass
    query.stop()
    if not enough.is_set():
        query.awaitTermination()
    return ids


own = {**options, "subscription": piped, "spoolDir": "s3://lake/apart/spool"}
print(json.dumps(arrived(own, "embedded", 100)))
with receivers(spark, received, "s3://lake/apart/received", count=2, options=options) as given:
    print(json.dumps(arrived(given, "received", 100)))
job = IngestJob(
    subscription=ingested,
    to="s3://lake/apart/table",
    state=folder / "state",
    storage=storage,
    options={"endpoint": endpoint, "drainWaitMs": "500", "lingerMs": "50"},
    available_now=True,
)
print(json.dumps(run_ingest(job, spark=spark).totals.rows))
spark.stop()
