"""`readStream.format("pubsub")`: Spark's stream reader, implemented by an IngestSession."""

from __future__ import annotations

import gc
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from .options import StreamOptions
from .partition import PartitionReader
from .planning import plan

if TYPE_CHECKING:
    from pullstream.spark.session.session import IngestSession

# An offset is the number of the last segment. Spark compares offsets as text.
Offset = dict[str, int]
_SEQ = "seq"

# Thresholds of the three generations: new objects before a collection of the youngest, and
# collections of a younger generation before one of the next.
_GC_THRESHOLDS = (50_000, 20, 50)


class PubSubStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The source of one run of a streaming query.

    Spark creates the reader in several processes and uses it in one of them: the source worker, a
    child of the JVM that lives as long as the query runs. There it calls all methods on the main
    thread, one at a time. The session with its threads, its lock and its stream is created by the
    first call that needs it, so the other processes open nothing. `stop` closes the session. Spark
    calls `stop` when its connection ends, but not for `query.stop()`, which sends a SIGTERM.

    The reader is pickled as the part that an executor needs.
    """

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._session: IngestSession | None = None

    def __reduce__(self) -> tuple[type[PartitionReader], tuple[()]]:
        return PartitionReader, ()

    def initialOffset(self) -> Offset:  # noqa: N802
        """Return the offset before the first segment."""
        # The same in each run, because the first batch is replayed from here.
        return {_SEQ: 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit from the option `maxMessagesPerTrigger`."""
        return ReadMaxRows(self._options.settings.max_messages_per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Let the query end when it has read the present backlog."""
        self._running().prepare_available_now()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return the end of the next batch, or `start` if there are no messages.

        A call with `start` proves that everything before `start` is committed.
        """
        from pullstream.spark.session.settings import Limit

        match limit:
            case ReadMaxRows(max_rows):
                bound = Limit(messages=max_rows)
            case ReadMaxBytes(max_bytes):
                bound = Limit(bytes=max_bytes)
            case _:
                bound = Limit()
        seq = self._running().latest(start[_SEQ], bound)
        return start if seq == start[_SEQ] else {_SEQ: seq}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Divide the segments after `start`, up to and including `end`, into partitions."""
        segments = self._running().segments(start[_SEQ], end[_SEQ])
        return plan(segments, self._options.layout)

    def commit(self, end: Offset) -> None:
        """Acknowledge the messages of the segments up to `end`."""
        self._running().commit(end[_SEQ])

    def reportLatestOffset(self) -> dict[str, int] | None:  # noqa: N802
        """Return the `latestOffset` of the source in a query's progress."""
        return None if self._session is None else self._session.report()

    def read(self, partition: InputPartition) -> Any:
        """Raise NotImplementedError: executors have a PartitionReader."""
        raise NotImplementedError("rows are read by PartitionReader, the pickled form of this")

    def stop(self) -> None:
        """Close the session, if this process has opened one."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _running(self) -> IngestSession:
        if self._session is None:
            # Imported here, because other processes do not need gRPC, which it imports.
            from pullstream.spark.session.prefetch import PrefetchMode
            from pullstream.spark.session.session import IngestSession

            from .batch_journal import Journal

            Journal(self._options.settings).refuse_stream()
            # Outside of Spark's source worker, the process belongs to someone else.
            if threading.current_thread() is threading.main_thread():
                _stop_at_sigterm()
                _end_without_trace()
                _spare_what_is_leased()
            self._session = IngestSession(
                self._options.settings, work_ahead=PrefetchMode.IN_BACKGROUND
            )
        return self._session


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
