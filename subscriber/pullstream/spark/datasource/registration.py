"""Registration of the data source with a Spark session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .source import LocalPubSubDataSource, PubSubDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Register `format("pubsub")` with a session, for batch and streaming reads and writes.

    May be called more than once. An installed wheel registers itself (see `pyspark_pubsub`). This
    function also detects whether the executors run on this machine, where they can read the spool's
    files directly.
    """
    on_this_machine = (_master(spark) or "").startswith("local")
    spark.dataSource.register(LocalPubSubDataSource if on_this_machine else PubSubDataSource)


def _master(spark: SparkSession) -> str | None:
    # The session's setting may differ from the running master. Spark Connect has only the setting.
    context = getattr(spark, "sparkContext", None)
    return spark.conf.get("spark.master", "") if context is None else context.master
