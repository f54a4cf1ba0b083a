"""Makes `format("pubsub")` known to every Spark session where pullstream is installed.

Spark imports each top-level module named `pyspark_*` and registers its `DefaultSource`. This folder
is installed as one: see package-dir in pyproject.toml.
"""

from subscriber.spark.source import PubSubDataSource as DefaultSource

__all__ = ["DefaultSource"]
