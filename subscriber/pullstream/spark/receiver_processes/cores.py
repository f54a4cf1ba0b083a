"""Check that a Spark session has enough cores for receivers and the query that reads them."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any

from pullstream_protocol.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOCAL = re.compile(r"local(?:\[(\d+|\*)(?:, *\d+)?\])?")

# Seconds that the executors of a new session may take to register, and between two looks.
_REGISTER = 30.0
_LOOK = 0.2


def is_connect(spark: SparkSession) -> bool:
    """Return whether a session is one of Spark Connect, whose driver is another process."""
    # The class cannot be imported without the packages of Spark Connect.
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def check_cores(spark: SparkSession, count: int) -> None:
    """Check that there is a core for each receiver, and one for the query.

    A receiver keeps its core. With too few cores, either a receiver or the query would wait for
    ever. Over Spark Connect, only the cores of a `local` master are known.

    Raises:
        ValueError: There are too few cores.
    """
    most = _most_of_connect(spark) if is_connect(spark) else _most(spark, count + 1)
    if most is not None and most < count + 1:
        raise ValueError(
            f"{count} receivers need a core each, and the query one more, but this session has "
            f"{most}; use fewer receivers, or a session with {count + 1} cores or more"
        )


def _most_of_connect(spark: SparkSession) -> int | None:
    match = _LOCAL.fullmatch(spark.conf.get("spark.master", "") or "")
    return None if match is None or match[1] == "*" else int(match[1] or 1)


def _most(spark: SparkSession, wanted: int) -> int | None:
    """Return how many tasks a session runs at once; None: it asks for as many executors as needed.

    Args:
        spark: The session.
        wanted: Executors are waited for until this number of tasks can run at once.
    """
    context = spark.sparkContext
    conf = context.getConf()
    per_task = int(conf.get("spark.task.cpus", "1") or 1)
    if conf.get("spark.dynamicAllocation.enabled", "false") == "true":
        executors = conf.get("spark.dynamicAllocation.maxExecutors")
        cores = conf.get("spark.executor.cores")
        is_limited = executors is not None and executors.isdecimal() and cores is not None
        return int(executors or 0) * (int(cores or 0) // per_task) if is_limited else None
    until = SYSTEM_CLOCK.monotonic() + _REGISTER
    pause = threading.Event()
    while True:
        # Also a session on this machine is an executor; the driver of a cluster has no cores.
        executors_now: Any = context._jsc.sc().statusStore().executorList(True)
        found = [executors_now.apply(place).totalCores() for place in range(executors_now.size())]
        tasks: int = sum(cores // per_task for cores in found)
        is_local = _LOCAL.fullmatch(context.master or "") is not None
        if tasks >= wanted or is_local or SYSTEM_CLOCK.monotonic() > until:
            return tasks
        pause.wait(_LOOK)
