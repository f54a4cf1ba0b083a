"""A SparkSession that works at once: on this machine, or on the cluster that it is told of."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from .java import ensure_java
from .registration import register
from .unix_sockets import unix_sockets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"

# Set where spark-submit has started the JVM, which then has all of its settings already.
_SUBMITTED = "PYSPARK_GATEWAY_PORT"

_ANYWHERE = {
    # So that times are shown, and times without a zone are read, alike wherever it runs.
    "spark.sql.session.timeZone": "UTC",
}
_ON_THIS_MACHINE = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # Two hundred partitions, the default, are for a cluster.
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
    # Java's compilers would take a quarter of two cores for half a minute. Later they do most of it
    # no more, as few methods are as hot as they look at the start (docs/performance.md). One's own
    # spark.driver.extraJavaOptions stand behind it.
    "spark.driver.defaultJavaOptions": "-XX:CompileThresholdScaling=5",
    # Renames the checkpoint's files through the file system alone: half the fixed cost of a batch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
}


def local_session(
    master: str | None = None,
    *,
    app_name: str = "pullstream",
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session with the source registered; the running one if there is one.

    On this machine ("local[*]", the default) it listens on loopback only, finds a Java, and runs
    its Python workers with this interpreter. With the master of a cluster it leaves to Spark what a
    cluster decides. Under spark-submit it changes nothing.

    Args:
        master: as Spark takes it. Default: what spark-submit says, else this machine.
        config: Spark settings, which come before the ones made here.

    Raises:
        JavaNotFound: Spark would have to be started, and there is no Java for it.
    """
    from pyspark.sql import SparkSession

    running = running_session()
    if running is not None:
        register(running)
        return running
    builder = SparkSession.builder
    settings = dict(config or {})
    if _SUBMITTED not in os.environ:
        master = master or LOCAL
        builder = builder.appName(app_name)
        settings = _prepared_for(master) | settings
    if master is not None:
        builder = builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    with warnings.catch_warnings():
        # pandas is not used, whichever version happens to be there.
        warnings.filterwarnings("ignore", message=".*pandas.*", category=FutureWarning)
        session = builder.getOrCreate()
    register(session)
    return session


@contextmanager
def session_for(
    master: str | None = None, *, app_name: str, config: Mapping[str, str]
) -> Iterator[SparkSession]:
    """As `local_session`, for the length of a block: what it has started is stopped at the end."""
    is_ours = running_session() is None
    session = local_session(master, app_name=app_name, config=config)
    try:
        yield session
    finally:
        if is_ours:
            # A JVM that has died cannot say so, and what it has died of was raised before.
            with suppress(Py4JError, OSError):
                session.stop()


def running_session() -> SparkSession | None:
    """The session of this thread, else of this process; None if Spark is not running."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is None and SparkContext._active_spark_context is not None:
        # Another thread's. Without an option this neither starts Spark nor changes a setting.
        running = SparkSession.builder.getOrCreate()
    return running


def _prepared_for(master: str) -> dict[str, str]:
    """The settings for a master, with the environment, which the JVM inherits, made ready."""
    ensure_java()
    if not master.startswith("local"):
        return _ANYWHERE
    # Else the workers would be run by whatever `python3` is first on PATH, without our packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return _ANYWHERE | _ON_THIS_MACHINE | unix_sockets()
