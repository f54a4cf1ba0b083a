"""SparkSession with the source registered, on this machine or on a cluster."""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from pullstream.runtime.stop_signals import STOP_SIGNALS, handled_by
from pullstream.spark.datasource.registration import register
from pullstream.spark.pyspark_version import LEAST, checkpoint_package, require_pyspark

from .java import ensure_java, java_without_incubator_warning
from .unix_sockets import unix_sockets
from .worker_python import PYTHON, worker_settings

if TYPE_CHECKING:
    from types import FrameType

    from pyspark.sql import SparkSession

LOCAL = "local[*]"

# Set if spark-submit has started the JVM, which then already has all its settings.
_SUBMITTED = "PYSPARK_GATEWAY_PORT"

# With this variable or setting, Spark makes sessions of Spark Connect.
_REMOTE, _REMOTE_SETTING = "SPARK_REMOTE", "spark.remote"

_JAVA_OPTIONS = "spark.driver.defaultJavaOptions"
# The configuration of Spark's log in commands, and the setting for other drivers than our own.
_NO_LOG = {"spark.log.level": "FATAL"}
# For each part of an expression, PySpark tells the JVM which line of the program has made it, so
# that errors can name the line. This takes most of the time of making expressions: 7 of 8 s for a
# schema of 200 columns. The lines of a command mean nothing to its user.
_NO_CALL_SITES = {"spark.python.sql.dataFrameDebugging.enabled": "false"}
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
        f"{checkpoint_package()}.FileSystemBasedCheckpointFileManager"
    ),
}

_ON_A_CLUSTER = {
    # As on this machine (see `unix_sockets`). Each node has this folder, and its path is short.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.unix.domain.socket.dir": "/tmp",
    _JAVA_OPTIONS: _ON_THIS_MACHINE[_JAVA_OPTIONS],
    "spark.executor.defaultJavaOptions": _ON_THIS_MACHINE[_JAVA_OPTIONS],
}
# The checkpoint of a command is on this machine's disk, also with a cluster.
_OF_A_COMMAND = {
    name: _ON_THIS_MACHINE[name]
    for name in (
        "spark.ui.showConsoleProgress",
        "spark.sql.streaming.checkpointFileManagerClass",
    )
}


def local_session(
    master: str | None = None,
    *,
    app_name: str = "pullstream",
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a session with the source registered; the running one if there is one.

    On this machine ("local[*]", the default), Spark listens on loopback only, a Java runtime is
    found, and the Python workers run with this interpreter. With a cluster's master, its executors
    are expected to have this interpreter at the same path, unless PYSPARK_PYTHON is set. Under
    spark-submit, no setting is changed.

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

    require_pyspark(LEAST, "a session")
    running = running_session()
    if running is not None:
        register(running)
        return running
    builder = SparkSession.builder
    settings = {} if has_log else dict(_NO_LOG)
    if _SUBMITTED not in os.environ:
        master = master or LOCAL
        builder = builder.appName(app_name)
        prepared = _prepared_for(master) | ({} if has_log else _OF_A_COMMAND)
        settings = prepared if has_log else _without_log(prepared)
    if not has_log:
        settings |= _NO_CALL_SITES
    settings |= config
    if master is not None:
        builder = builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    if not has_log:
        _start_quietly(settings | ({} if master is None else {"spark.master": master}))
    with warnings.catch_warnings():
        # pandas is not used, so its version does not matter.
        warnings.filterwarnings("ignore", message=".*pandas.*", category=FutureWarning)
        session = builder.getOrCreate()
    register(session)
    return session


def _start_quietly(settings: Mapping[str, str]) -> None:
    """Start Java, then Spark, without traces of signals."""
    from pyspark import SparkConf, SparkContext

    with _interrupts_wait():
        if _SUBMITTED not in os.environ:
            _start_java_apart(settings)
        SparkContext.getOrCreate(SparkConf().setAll(list(settings.items())))


def _start_java_apart(settings: Mapping[str, str]) -> None:
    """Start Java in its own session.

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
def _interrupts_wait() -> Iterator[None]:
    """Call the handlers of signals in this block, but raise KeyboardInterrupt at its end.

    Spark sets a handler of Ctrl-C, which cancels the current batch, and fails with a trace while
    Spark starts. At the end of the block, the handlers are the old ones. A Java that is left at its
    start writes a trace and does not end.
    """
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    interrupted = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        handler = before[signal.Signals(number)]
        assert callable(handler)
        try:
            handler(number, frame)
        except KeyboardInterrupt:
            interrupted = True

    is_main = threading.current_thread() is threading.main_thread()
    ours = [number for number, one in before.items() if is_main and callable(one)]
    with handled_by(handle, ours):
        yield
    if interrupted:
        raise KeyboardInterrupt


@contextmanager
def session_for(
    master: str | None = None, *, app_name: str, config: Mapping[str, str]
) -> Iterator[SparkSession]:
    """Like `local_session`, for a command: without Spark's log, because it reports errors itself.

    Ctrl-C keeps its handler.

    A session that was started here is stopped at the end of the block.
    """
    is_ours = running_session() is None
    remote = remote_of(master, config) if is_ours else None
    with ExitStack() as during_start:
        if is_ours and remote is None and _SUBMITTED not in os.environ:
            ensure_java()
            during_start.enter_context(java_without_incubator_warning())
        if remote is None:
            session = _session(master, app_name, config, has_log=False)
        else:
            session = connect_session(remote, config)
    try:
        yield session
    finally:
        if is_ours:
            # A JVM that has died cannot be stopped, and the cause of its death was raised before.
            with suppress(Py4JError, OSError):
                session.stop()


def remote_of(master: str | None = None, config: Mapping[str, str] | None = None) -> str | None:
    """Return the URL of Spark Connect for which settings of a new session ask; None: none does."""
    asked = (
        master if (master or "").startswith("sc://") else None,
        (config or {}).get(_REMOTE_SETTING),
        os.environ.get(_REMOTE),
    )
    return next((url for url in asked if url), None)


def connect_session(url: str, config: Mapping[str, str] | None = None) -> SparkSession:
    """Return a session of Spark Connect with the source registered.

    Args:
        url: `sc://HOST:PORT`, or `local` and the like for a server of this process.
        config: Spark settings.

    Raises:
        JavaNotFound: A server must be started here, and there is no usable Java.
    """
    from pyspark.sql import SparkSession

    settings = {**(_prepared_for(LOCAL) if url.startswith("local") else {}), **(config or {})}
    builder = SparkSession.builder.remote(url)
    for name, value in settings.items():
        if name != _REMOTE_SETTING:
            builder = builder.config(name, value)
    with warnings.catch_warnings():
        # A server of this process has had the settings at its start.
        warnings.filterwarnings("ignore", message="Failed to set ")
        session = builder.getOrCreate()
    register(session)
    return session


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
        # Also for the source, which runs on this machine. The first `python3` on PATH may have
        # nothing.
        os.environ.setdefault(PYTHON, sys.executable)
        return _ANYWHERE | _ON_A_CLUSTER
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return _ANYWHERE | _ON_THIS_MACHINE | unix_sockets() | worker_settings()


def _without_log(settings: dict[str, str]) -> dict[str, str]:
    """Return the settings of a driver that logs only fatal errors."""
    options = settings.get(_JAVA_OPTIONS)
    if options is None:
        return settings | _NO_LOG
    # The setting of the level comes too late for the lines that Spark prints at its start.
    settings = settings | {_JAVA_OPTIONS: f"{options} -Dlog4j2.configurationFile={_LOG.as_uri()}"}
    settings.pop("spark.log.level", None)
    return settings
