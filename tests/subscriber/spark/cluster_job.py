"""A job for spark-submit: a subscription into a table, and from there into another topic.

spark-submit --py-files pullstream.zip cluster_job.py ENDPOINT SUBSCRIPTION TOPIC FOLDER
"""

import sys

from pullstream.spark import local_session

endpoint, subscription, topic, folder = sys.argv[1:]
spark = local_session()
rows = (
    spark.readStream.format("pubsub")
    .option("subscription", subscription)
    .option("endpoint", endpoint)
    .option("spoolDir", f"{folder}/spool")
    .option("numPartitions", 2)
    .option("partitionBy", "orderingKey")
    .option("drainWaitMs", 500)
    .load()
)
query = (
    rows.writeStream.format("parquet")
    .option("path", f"{folder}/table")
    .option("checkpointLocation", f"{folder}/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
table = spark.read.parquet(f"{folder}/table")
table.select("data").write.format("pubsub").option("topic", topic).option(
    "endpoint", endpoint
).mode("append").save()
print("rows:", table.count(), "master:", spark.conf.get("spark.master"))
spark.stop()
