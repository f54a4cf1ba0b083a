"""Receivers as tasks of a Spark job."""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from secrets import token_hex
from typing import TYPE_CHECKING, Literal

from pullstream.spark.errors import FailureCause, ingest_error
from pullstream_protocol.clock import SYSTEM_CLOCK

from .cores import check_cores, is_connect
from .options import for_other_machines, settings_of, with_defaults
from .receiver_task import FAILED, task_of
from .stop_line import STOPPED, StopLine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from typing_extensions import Self

_log = logging.getLogger("pullstream.spark")

# Seconds before a job that has ended is started again.
_PAUSE = 1.0

# A receiver's own error is final if _TRIES jobs in a row have ended by one, each within _SOON
# seconds. A killed worker is no such error.
_TRIES = 3
_SOON = 120.0

# Seconds that receivers may take to end. Their job is cancelled when half of the time is over.
_END = 10.0

# Errors that do not pass.
_FINAL = {
    *("ValueError", "TypeError", "ImportError"),
    *("NotFound", "PermissionDenied", "Unauthenticated", "InvalidArgument", "FailedPrecondition"),
}
_REASON = re.compile(re.escape(FAILED) + r"(?P<kind>\w+): (?P<text>[^\n]*)")

_FAIR_POOL = "pullstream-receivers"


@contextmanager
def receivers(
    spark: SparkSession,
    subscription: str,
    spool: str,
    *,
    count: int = 1,
    streams: int = 1,
    acknowledge: Literal["committed", "stored"] = "committed",
    options: Mapping[str, str] | None = None,
) -> Iterator[dict[str, str]]:
    """Run receivers as tasks of Spark during the block, and provide the options of the source.

    A job in the background has one task for each receiver, which keeps one core. A task that fails
    is started again by Spark, and a job that ends is started again here. The receivers write the
    messages to the spool, and the streaming query reads them from there:

        with receivers(spark, "projects/p/subscriptions/s", "s3://bucket/s", count=4) as options:
            query = spark.readStream.format("pubsub").options(**options).load()...start()
            query.awaitTermination()

    The end of the block ends the receivers, which return the messages that are not acknowledged,
    and waits for them, for 10 seconds at most. They also end when the driver or an executor ends.
    Over Spark Connect, or if executors cannot connect to the driver, the block does not wait for
    the last seconds.

    Args:
        spark: The session, which may be one of Spark Connect.
        subscription: Full name of the subscription, or its short name if `options` has `project`.
        spool: Folder that driver and executors see, or the URL of a folder in an object store.
        count: Number of receivers. The session needs a core for each one, and one more.
        streams: Number of streams of each receiver.
        acknowledge: When messages are acknowledged: "committed" (default) after the commit of
            their batch, "stored" when the spool has them.
        options: Other options of the source, by their names there. They also apply to the
            receivers, whose defaults of `maxMessagesPerTrigger` (50,000) and `lingerMs` (1,000)
            differ.

    Raises:
        ValueError: An option is invalid, or the session has too few cores.
        IngestError: The receivers have failed. It is raised at the end of the block, and logged as
            soon as it happens.
    """
    given = with_defaults(
        {
            **(options or {}),
            "subscription": subscription,
            "spoolDir": spool,
            "acknowledge": acknowledge,
        }
    )
    with ReceiverTasks(spark, {**given, "streams": str(streams)}, count=count) as tasks:
        yield {**given, "receivers": "outside"}
    tasks.check()


class ReceiverTasks:
    """A job with one task for each receiver, which is started again when it ends.

    It runs during a `with` block. Any thread may read its attributes.

    Attributes:
        count: Number of receivers.
        restarts: Number of times that the job was started again.
        is_over: Whether the job has ended for good: all receivers of an "available now" run have
            ended, or an error is final.

    Args:
        spark: The session.
        options: Options of the receivers.
        count: Number of receivers.
        available_now: Whether the receivers end when the subscription is empty.

    Raises:
        ValueError: An option is invalid.
    """

    def __init__(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        *,
        count: int,
        available_now: bool = False,
    ) -> None:
        # Before the start, and before any task.
        settings_of(options, count=count, available_now=available_now)
        self._spark = spark
        self.count: int = count
        self._available_now = available_now
        self._settings = {
            "options": for_other_machines(options),
            "count": count,
            "availableNow": available_now,
            "line": None,
        }
        self._line: StopLine | None = None
        self._group = f"pullstream-receivers-{token_hex(4)}"
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pullstream-receivers", daemon=True)
        self._failure: tuple[str, str] | None = None
        self.restarts: int = 0
        self.is_over: bool = False

    def __enter__(self) -> Self:
        """Start the job in the background.

        Raises:
            ValueError: The session has too few cores.
        """
        check_cores(self._spark, self.count)
        if not is_connect(self._spark):
            conf = self._spark.sparkContext.getConf()
            host = conf.get("spark.driver.host", "localhost") or "localhost"
            # Without it, the receivers end when their job is cancelled.
            with suppress(OSError):
                self._line = StopLine(conf.get("spark.driver.bindAddress") or host)
                self._settings["line"] = [host, self._line.port]
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the receivers, and wait until they have ended."""
        self._end.set()
        until = SYSTEM_CLOCK.monotonic() + _END
        if self._line is not None:
            self._line.stop()
            self._thread.join(_END / 2)
        while self._thread.is_alive() and SYSTEM_CLOCK.monotonic() < until:
            # A job that is just being started is not cancelled by the first call.
            with suppress(Exception):
                self._cancel()
            self._thread.join(0.5)
        if self._line is not None:
            self._line.close()

    def check(self) -> None:
        """Raise IngestError if the receivers have failed."""
        if self._failure is not None:
            kind, text = self._failure
            cause = FailureCause.STATE if kind == "SpoolError" else FailureCause.SOURCE
            raise ingest_error(f"the receivers have failed: {kind}: {text}", cause)

    @property
    def running(self) -> int | None:
        """Number of receivers that run now; None over Spark Connect, which does not say."""
        if is_connect(self._spark) or self._end.is_set():
            return None
        tracker = self._spark.sparkContext.statusTracker()
        jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(self._group)]
        stages = [
            tracker.getStageInfo(stage)
            for job in jobs
            if job is not None and job.status == "RUNNING"
            for stage in job.stageIds
        ]
        return sum(stage.numActiveTasks for stage in stages if stage is not None)

    def _run(self) -> None:
        failed = 0
        while not self._end.is_set():
            began = SYSTEM_CLOCK.monotonic()
            try:
                have_ended = self._job()
            except Exception as error:
                if self._end.is_set():
                    return
                found = _REASON.search(str(error))
                is_short = SYSTEM_CLOCK.monotonic() - began < _SOON
                failed = (failed + 1 if is_short else 1) if found else 0
                if found and (found["kind"] in _FINAL or failed == _TRIES):
                    self._failure = found["kind"], found["text"]
                    self.is_over = True
                    _log.error("the receivers have failed: %s: %s", *self._failure)
                    return
                _log.warning(
                    "the receivers' job has ended and is started again: %s",
                    f"{found['kind']}: {found['text']}" if found else _first_line(error),
                )
            else:
                if self._available_now and have_ended:
                    self.is_over = True
                    return
            self._end.wait(_PAUSE)
            self.restarts += 1

    def _job(self) -> bool:
        """Run the job to its end; return whether all receivers have ended by themselves."""
        spark, count = self._spark, self.count
        task = task_of(json.dumps(self._settings), STOPPED)
        if is_connect(spark):
            spark.addTag(self._group)
            # Spark Connect has no RDDs. mapInArrow needs pandas, which Spark Connect needs, too.
            rows = spark.range(0, count, 1, count).mapInArrow(task, "id long").collect()
            return len(rows) == count
        context = spark.sparkContext
        context.setJobGroup(self._group, f"{count} receivers of pullstream")
        if (context.getConf().get("spark.scheduler.mode") or "FIFO").upper() == "FAIR":
            context.setLocalProperty("spark.scheduler.pool", _FAIR_POOL)
        return context.parallelize(range(count), count).mapPartitions(task).count() == count

    def _cancel(self) -> None:
        if is_connect(self._spark):
            self._spark.interruptTag(self._group)
        else:
            self._spark.sparkContext.cancelJobGroup(self._group)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else repr(error)
