"""Registration of the data source with a Spark session."""

from __future__ import annotations

import logging
import socket
from functools import cache
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException

from .source import PubSubDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("pullstream.spark")

_SOCKETS = "spark.python.unix.domain.socket.enabled"


def register(spark: SparkSession) -> None:
    """Register `format("pubsub")` with a session, for batch and streaming reads and writes.

    May be called more than once. An installed wheel registers itself (see `pyspark_pubsub`). This
    function also detects whether the executors run on this machine, where they can read the spool's
    files directly, and counts the session's cores, among which batches are divided. On a cluster
    whose executors have not started yet, call it again when they have. It logs once if a session,
    not made by `local_session`, has no Unix sockets.
    """
    on_this_machine = (_master(spark) or "").startswith("local")

    class SessionSource(PubSubDataSource):
        files_are_shared = on_this_machine
        # On this machine, the source itself needs a core.
        cores = max(_cores(spark) - on_this_machine, 1)

    try:
        spark.dataSource.register(SessionSource)
    except AnalysisException as error:
        # PySpark 4.0 does not replace the source of an installed wheel. That source sends the rows
        # with the tasks, and does not know the cores.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
    context = getattr(spark, "sparkContext", None)
    if context is not None and _is_without_sockets(spark):
        _note_sockets(context.applicationId)


def _master(spark: SparkSession) -> str | None:
    # The session's setting may differ from the running master. Spark Connect has only the setting.
    context = getattr(spark, "sparkContext", None)
    return spark.conf.get("spark.master", "") if context is None else context.master


def _cores(spark: SparkSession) -> int:
    """Return the number of the session's cores; 1 with Spark Connect, which does not tell it."""
    context = getattr(spark, "sparkContext", None)
    return 1 if context is None else int(context.defaultParallelism)


def _is_without_sockets(spark: SparkSession) -> bool:
    # The configuration of the context would be copied, with hundreds of calls of Java.
    is_set = spark.conf.get(_SOCKETS, "false") == "true"
    return hasattr(socket, "AF_UNIX") and not is_set


@cache
def _note_sockets(application: str) -> None:
    """Log once for each application that a setting is missing, which only its start can set."""
    _log.warning(
        "the Spark session lacks %s=true, so that each task which runs Python waits for 40 ms; "
        "pullstream.spark.local_session() sets it",
        _SOCKETS,
    )
