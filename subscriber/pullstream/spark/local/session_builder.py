"""SparkSession with the source registered, on this machine or on a cluster."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from pullstream.spark.datasource.registration import register
from pullstream.spark.pyspark_version import BATCHES, require_pyspark

from .java import ensure_java, java_without_incubator_warning
from .unix_sockets import unix_sockets
from .worker_python import worker_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"

# Set if spark-submit has started the JVM, which then already has all its settings.
_SUBMITTED = "PYSPARK_GATEWAY_PORT"

_JAVA_OPTIONS = "spark.driver.defaultJavaOptions"
# The configuration of Spark's log in commands, and the setting for other drivers than our own.
_NO_LOG = {"spark.log.level": "FATAL"}
_LOG = Path(__file__).absolute().with_name("log4j2.properties")

_ANYWHERE = {
    # Times are shown, and times without a zone are read, in the same way on every machine.
    "spark.sql.session.timeZone": "UTC",
}
_ON_THIS_MACHINE = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # The default of 200 partitions is for clusters.
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
    # Otherwise Java's compilers use a quarter of two cores for half a minute. Most of that work is
    # not needed later, because few methods are as hot as they look at the start
    # (docs/performance.md). The user's spark.driver.extraJavaOptions come after this option and
    # override it.
    _JAVA_OPTIONS: "-XX:CompileThresholdScaling=5",
    # Renames the checkpoint's files by the file system alone: half the fixed cost of a batch.
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
    """Return a session with the source registered; the running one if there is one.

    On this machine ("local[*]", the default), Spark listens on loopback only, a Java runtime is
    found, and the Python workers run with this interpreter. With a cluster's master, the cluster's
    defaults apply. Under spark-submit, no setting is changed.

    Args:
        master: Spark master URL. Default: the master of spark-submit, otherwise this machine.
        app_name: Name of the application.
        config: Spark settings, which override the ones made here.

    Raises:
        JavaNotFound: Spark must be started, and there is no usable Java.
    """
    return _session(master, app_name, config or {}, has_log=True)


def _session(
    master: str | None, app_name: str, config: Mapping[str, str], *, has_log: bool
) -> SparkSession:
    from pyspark.sql import SparkSession

    require_pyspark(BATCHES, "a session")
    running = running_session()
    if running is not None:
        register(running)
        return running
    builder = SparkSession.builder
    settings = {} if has_log else dict(_NO_LOG)
    if _SUBMITTED not in os.environ:
        master = master or LOCAL
        builder = builder.appName(app_name)
        prepared = _prepared_for(master)
        settings = prepared | settings if has_log else _without_log(prepared)
    settings |= config
    if master is not None:
        builder = builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    if not has_log and _SUBMITTED not in os.environ:
        _start_java_apart(settings)
    with warnings.catch_warnings():
        # pandas is not used, so its version does not matter.
        warnings.filterwarnings("ignore", message=".*pandas.*", category=FutureWarning)
        session = builder.getOrCreate()
    register(session)
    return session


def _start_java_apart(settings: Mapping[str, str]) -> None:
    """Start Java in a session of its own.

    A signal to the process group of the command, by `timeout` or by a scheduler that ends a task,
    must not end Java before the job has ended. Java ends when the command's end closes its input.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is None:
        conf = SparkConf().setAll(list(settings.items()))
        # The copy in PySpark has no type annotations.
        gateway = launch_gateway(conf, {"start_new_session": True})  # type: ignore[no-untyped-call]
        SparkContext._gateway = gateway
        SparkContext._jvm = gateway.jvm


@contextmanager
def session_for(
    master: str | None = None, *, app_name: str, config: Mapping[str, str]
) -> Iterator[SparkSession]:
    """Like `local_session`, for a command: without Spark's log, because it reports errors itself.

    A session that was started here is stopped at the end of the block.
    """
    is_ours = running_session() is None
    with ExitStack() as during_start:
        if is_ours and _SUBMITTED not in os.environ:
            ensure_java()
            during_start.enter_context(java_without_incubator_warning())
        session = _session(master, app_name, config, has_log=False)
    try:
        yield session
    finally:
        if is_ours:
            # A JVM that has died cannot be stopped, and the cause of its death was raised before.
            with suppress(Py4JError, OSError):
                session.stop()


def running_session() -> SparkSession | None:
    """Return the session of this thread or process, or None if Spark is not running."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is None and SparkContext._active_spark_context is not None:
        # The session of another thread. Without options, this neither starts Spark nor changes a
        # setting.
        running = SparkSession.builder.getOrCreate()
    return running


def _prepared_for(master: str) -> dict[str, str]:
    """Return the settings for a master, and prepare the environment that the JVM inherits."""
    ensure_java()
    if not master.startswith("local"):
        return _ANYWHERE
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return _ANYWHERE | _ON_THIS_MACHINE | unix_sockets() | worker_settings()


def _without_log(settings: dict[str, str]) -> dict[str, str]:
    """Return the settings of a driver that logs only fatal errors."""
    options = settings.get(_JAVA_OPTIONS)
    if options is None:
        return settings | _NO_LOG
    # The setting of the level comes too late for the lines that Spark prints at its start.
    settings = settings | {_JAVA_OPTIONS: f"{options} -Dlog4j2.configurationFile={_LOG.as_uri()}"}
    del settings["spark.log.level"]
    return settings
