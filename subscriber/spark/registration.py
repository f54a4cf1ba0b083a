"""Telling a Spark session of the data source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .source import LocalPubSubDataSource, PubSubDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make `format("pubsub")` known to a session: to read, to write, as a stream or a batch.

    Of no harm when done twice. A wheel that is installed registers itself (see `pyspark_pubsub`);
    this one knows besides whether the executors run on this machine, where they can read the
    spool's files themselves.
    """
    on_this_machine = (_master(spark) or "").startswith("local")
    spark.dataSource.register(LocalPubSubDataSource if on_this_machine else PubSubDataSource)


def _master(spark: SparkSession) -> str | None:
    # A session's setting may be another than what runs. Spark Connect has nothing else.
    context = getattr(spark, "sparkContext", None)
    return spark.conf.get("spark.master", "") if context is None else context.master
