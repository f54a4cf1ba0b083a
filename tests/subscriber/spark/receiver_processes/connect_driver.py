"""A driver of Spark Connect with one receiver and a query. It prints the number of rows.

python connect_driver.py ENDPOINT FOLDER SUBSCRIPTION
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from pyspark.sql import SparkSession

from pullstream.spark import receivers, register


def main(endpoint: str, folder: str, subscription: str) -> None:
    session = SparkSession.builder.remote("local[2]").getOrCreate()
    register(session)
    try:
        with receivers(session, subscription, f"{folder}/spool", count=2):
            raise AssertionError("two receivers fit into two cores")
    except ValueError as error:
        print(error)
    options = {"endpoint": endpoint, "lingerMs": "50"}
    with receivers(session, subscription, f"{folder}/spool", options=options) as found:
        stream = session.readStream.format("pubsub").options(**found).load()
        writer = stream.writeStream.format("parquet")
        query = writer.option("checkpointLocation", f"{folder}/state").start(f"{folder}/rows")
        pause = threading.Event()
        # Spark writes this file when the batch is complete. The first batch may have no rows.
        while query.isActive and not list(Path(folder, "rows").glob("*.parquet")):
            pause.wait(0.2)
        query.processAllAvailable()
        query.stop()
    print(session.read.parquet(f"{folder}/rows").select("message_id").distinct().count())
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
