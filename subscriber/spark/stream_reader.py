"""`readStream.format("pubsub")`: Spark's questions, answered by an IngestSession."""

from __future__ import annotations

import gc
import signal
import sys
import threading
from types import FrameType
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
    from .session import IngestSession

# An offset is the number of the last segment. Spark compares offsets as texts.
Offset = dict[str, int]
_SEQ = "seq"

# New objects, and younger searches, between two searches of each of the three generations.
_GC_THRESHOLDS = (50_000, 20, 50)


class PubSubStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The source of one run of a streaming query.

    Spark makes it in several processes, and uses it in one: the source worker, a child of the JVM
    that lives as long as the query runs. There all methods are called on the main thread, one at a
    time. What it owns, the session with its threads, its lock and its stream, begins with the first
    call that needs it, so that the other processes open nothing. It ends with `stop`, which Spark
    calls when its connection ends, but not for `query.stop()`: that is a SIGTERM.

    Pickled, it is what an executor needs of it.
    """

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._session: IngestSession | None = None

    def __reduce__(self) -> tuple[type[PartitionReader], tuple[()]]:
        return PartitionReader, ()

    def initialOffset(self) -> Offset:  # noqa: N802
        # The same in each run: the first batch is replayed from here.
        return {_SEQ: 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.settings.max_messages_per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._running().prepare_available_now()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """The end of the next batch: `start` itself when there is nothing.

        That Spark asks from `start` on proves that all before it is committed.
        """
        from .session import Limit

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
        segments = self._running().segments(start[_SEQ], end[_SEQ])
        return plan(segments, self._options.layout)

    def commit(self, end: Offset) -> None:
        self._running().commit(end[_SEQ])

    def reportLatestOffset(self) -> dict[str, int] | None:  # noqa: N802
        """What a query's progress shows as `latestOffset` of its source."""
        return None if self._session is None else self._session.report()

    def read(self, partition: InputPartition) -> Any:
        raise NotImplementedError("rows are read by the PartitionReader that this is pickled as")

    def stop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _running(self) -> IngestSession:
        if self._session is None:
            # Here and not above: gRPC, which it imports, is of no use in the other processes.
            from .batch_read import Journal
            from .session import IngestSession, WorkAhead

            Journal(self._options.settings).refuse_stream()
            # Elsewhere than in Spark's source worker the process is not ours.
            if threading.current_thread() is threading.main_thread():
                _stop_at_sigterm()
                _spare_what_is_leased()
            self._session = IngestSession(
                self._options.settings, work_ahead=WorkAhead.IN_BACKGROUND
            )
        return self._session


def _stop_at_sigterm() -> None:
    """Let SIGTERM, which is how Spark stops a query, unwind this process as its end would.

    Then `stop` is called, the lock of the spool released, and what was not used given back.
    """

    def leave(number: int, frame: FrameType | None) -> None:
        # Spark sends a second one, which must not cut short what the first has begun.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(0)

    signal.signal(signal.SIGTERM, leave)


def _spare_what_is_leased() -> None:
    """Search for cyclic garbage less often.

    By default Python does it for every 700 new objects, and by and by through all that there are.
    Here these are messages by the ten thousand, none of them cyclic: a quarter of all work.
    """
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
