"""The stream reader without the methods that only some versions of PySpark have."""

from __future__ import annotations

import gc
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pullstream.spark.errors import SpoolError
from pullstream.spark.protocol.coordinator import START
from pullstream.spark.protocol.coordinator import Offset as Position

from .options import StreamOptions
from .partition import PartitionReader
from .planning import plan, planned_rows

if TYPE_CHECKING:
    from pullstream.spark.session.source_session import SourceSession

# `plan` and `chain` of a position, as in docs/spark-format.md. Spark compares offsets as text.
Offset = dict[str, Any]

# Thresholds of the three generations: new objects before a collection of the youngest, and
# collections of a younger generation before one of the next.
_GC_THRESHOLDS = (50_000, 20, 50)


class SourceReader(PartitionReader, DataSourceStreamReader):
    """The source of one run of a streaming query.

    Spark creates the reader in several processes and uses it in one of them: the source worker, a
    child of the JVM that lives as long as the query runs. There it calls all methods on the main
    thread, one at a time. The session with its threads, its lock and its stream is created by the
    first call that needs it, so the other processes open nothing. `stop` closes the session. Spark
    calls `stop` when its connection ends, but not for `query.stop()`, which sends a SIGTERM.
    """

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._session: SourceSession | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        """Return the offset before the first batch."""
        # The same in each run, because the first batch is replayed from here.
        return START._asdict()

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Divide the rows of the batch from `start` to `end` into partitions."""
        if start == end:
            # The first batch of a query may be without messages.
            return []
        planned = self.running().plan(position(start), position(end))
        return plan(planned_rows(self._options.settings, planned), self._options.layout)

    def commit(self, end: Offset) -> None:
        """Acknowledge the messages of the batches up to `end`."""
        self.running().commit(position(end))

    def stop(self) -> None:
        """Close the session, if this process has opened one."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def running(self) -> SourceSession:
        """Return the session, which the first call opens."""
        if self._session is None:
            # Imported here, because other processes do not need gRPC, which it imports.
            from pullstream.spark.session.prefetch import PrefetchMode
            from pullstream.spark.session.source_session import SourceSession

            from .batch_journal import Journal

            settings = self._options.settings
            Journal(settings.spool(), str(settings.spool_dir)).refuse_stream()
            # Outside of Spark's source worker, the process belongs to someone else.
            if threading.current_thread() is threading.main_thread():
                _stop_at_sigterm()
                _end_without_trace()
                _spare_what_is_leased()
            self._session = SourceSession(
                self._options.settings, work_ahead=PrefetchMode.IN_BACKGROUND
            )
        return self._session


def position(offset: Offset) -> Position:
    """Return the position of an offset.

    Raises:
        SpoolError: The offset is of another version.
    """
    try:
        return Position(offset["plan"], offset["chain"])
    except KeyError:
        raise SpoolError(
            f"the checkpoint's offset is {offset}, which is of an earlier version that was never "
            "released. Use an empty checkpoint and an empty spoolDir"
        ) from None


def _stop_at_sigterm() -> None:
    """Exit on SIGTERM, by which Spark stops a query, with the same cleanup as at a normal end.

    Then `stop` is called, the lock of the spool is released, and unused messages are returned.
    """

    def leave(number: int, frame: FrameType | None) -> None:
        # Spark sends a second SIGTERM, which must not interrupt the cleanup of the first.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(0)

    signal.signal(signal.SIGTERM, leave)


def _end_without_trace() -> None:
    """Print no traceback when this process ends because Spark has closed its connection.

    Spark does so when it stops a query. pyspark then tries to report the end on that connection.
    """

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not issubclass(kind, BrokenPipeError):
            sys.__excepthook__(kind, error, trace)

    sys.excepthook = show


def _spare_what_is_leased() -> None:
    """Collect cyclic garbage less often.

    By default, Python runs a collection for every 700 new objects, and at longer intervals over all
    objects. Here these are tens of thousands of messages, none of them cyclic. The collections
    would take a quarter of all work.
    """
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
