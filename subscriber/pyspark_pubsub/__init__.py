"""Registers `format("pubsub")` with every Spark session if pullstream is installed.

Spark imports each top-level module named `pyspark_*` and registers its `DefaultSource`. This folder
is installed as such a module: see `packages` in pyproject.toml.
"""

from pullstream.spark.datasource.source import PubSubDataSource as DefaultSource

__all__ = ["DefaultSource"]
