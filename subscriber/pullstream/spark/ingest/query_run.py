"""One query of an ingestion job, from its start to its end."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import inf
from typing import TYPE_CHECKING, Protocol

from pyspark.errors import PySparkException

from pullstream.runtime.stop_signals import StopFlag
from pullstream.spark.datasource.options import DRAINED, UNTIL_DRAINED
from pullstream.spark.errors import FailureCause, ingest_error
from pullstream.spark.local.java_error import reason_of
from pullstream.spark.protocol.layout import Segment
from pullstream.spark.protocol.waiting_segments import WaitingSegment, WaitingSegments
from pullstream.spark.pyspark_version import passes_start
from pullstream.spark.receiver_processes.spark_job import ReceiverTasks
from pullstream.spark.receiving.outage_note import Outage, noted_outage
from pullstream.spark.store_errors import is_of_storage
from pullstream.spark.stores import LocalFolder
from pullstream_protocol.clock import SYSTEM_CLOCK

from .config import IngestJob
from .failures import SLOW_START, failure_of
from .report import IngestReport, Phase, Receivers, Totals, Waiting
from .state import IngestState, planned_and_committed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# Polling intervals of the query in seconds: normally, and when the job is ending.
_LOOK = 0.5
_LAST_LOOK = 0.05

# Seconds between two looks at the segments in a bucket, whose manifests are fetched once.
_LOOK_AT_BUCKET = 10.0

# Time that Spark may take to commit a written batch, in seconds.
_COMMIT_WAIT = 10.0

# Seconds after which an outage is shown.
_OUTAGE = 1.0

# Number of times that a query is started again whose source process was not ready in time.
_RESTARTS = 5


class Handler(Protocol):
    """The results of a run's batches; see BatchHandler."""

    @property
    def totals(self) -> Totals:
        """Sums over the complete batches of this run."""

    @property
    def reasons(self) -> Mapping[str, int]:
        """Number of bad rows by reason."""

    @property
    def unknown(self) -> Mapping[str, int]:
        """Number of good rows by a field outside the schema."""

    @property
    def phase(self) -> Phase:
        """The present activity."""

    @property
    def offset(self) -> int:
        """The source's offset at the end of the last written batch."""

    @property
    def written(self) -> int | None:
        """Spark's number of the last written batch."""

    @property
    def failure(self) -> BaseException | None:
        """The error of the last batch that failed."""

    @property
    def refused(self) -> bool:
        """Whether a batch was refused."""

    def close(self) -> bool:
        """Start no more batches; return True if none is running."""


class Files(Protocol):
    """The files of a job on the driver's machine that tell about its query."""

    @property
    def look_every(self) -> float:
        """Shortest time between two looks at the segments, in seconds."""

    @property
    def is_lost(self) -> bool:
        """Whether the driver cannot be asked any more."""

    @property
    def is_replaced(self) -> bool:
        """Whether a later run of the job has taken over its state."""

    def segments(self, offset: int) -> Sequence[WaitingSegment]:
        """Return the segments that are not in batches up to `offset`."""

    def outage(self) -> Outage | None:
        """Return the outage of the source; None: there is none."""

    def committed(self) -> int:
        """Return Spark's number of the newest committed batch; -1: none."""

    def refresh(self) -> None:
        """Let the handler and the other methods tell the present state."""


class FilesHere:
    """Files on this machine.

    Args:
        state: The state of the job.
        seen: The result of `seen` in an earlier process.
    """

    def __init__(self, state: IngestState, seen: bytes | None = None) -> None:
        spool = state.spool
        self._folder = state.folder
        self._notes = state.notes
        self._segments = WaitingSegments(spool, seen)
        self.look_every: float = 0.0 if isinstance(spool, LocalFolder) else _LOOK_AT_BUCKET
        self.is_lost: bool = False
        # The job has the lock of its state.
        self.is_replaced: bool = False

    def segments(self, offset: int) -> Sequence[WaitingSegment]:
        """Return the segments that are not in batches up to `offset`."""
        return self._segments.after(offset)

    def seen(self) -> bytes:
        """Return the contents that were read from the spool, for the next process."""
        return self._segments.seen()

    def outage(self) -> Outage | None:
        """Return the outage of the source; None: there is none."""
        return noted_outage(self._notes)

    def committed(self) -> int:
        """Return Spark's number of the newest committed batch; -1: none."""
        return planned_and_committed(self._folder)[1]

    def refresh(self) -> None:
        """Do nothing: the files are read by each call."""


class QueryRun:
    """One query, from its start to its end; used by one thread.

    Args:
        handler: The query's function.
        start: Starts the query, also again.
        to: Description of the table.
        bad_to: Description of the table of bad rows; None without one.
        files: The files that tell about the query.
        server: Address of the source's server.
        tasks: The receivers, if they run as tasks of Spark.
    """

    def __init__(
        self,
        handler: Handler,
        start: Callable[[], StreamingQuery],
        to: str,
        bad_to: str | None,
        files: Files,
        server: str,
        tasks: ReceiverTasks | None = None,
    ) -> None:
        self._handler = handler
        self._start = start
        self._files = files
        self._restarts = 0
        self._notice = ""
        self._query = self._started()
        self._found = Waiting()
        self._looked = -inf
        self._server = server
        self._tasks = tasks
        # The segments at the end of the receivers of an "available now" run.
        self._last: set[Segment] | None = None
        self._to = to
        self._bad_to = bad_to
        self._began = SYSTEM_CLOCK.monotonic()
        self._source: dict[str, int] = {}
        self._stopped = False
        self._ended = False
        self._phase = Phase.CONNECTING
        self._since = SYSTEM_CLOCK.now()
        self._batches = 0

    def wait(self, stop: StopFlag, watch: Callable[[IngestReport], None]) -> None:
        """Return when the query has ended; raise IngestError if it failed or was replaced."""
        try:
            while not (stop.wait(0) or self._ended_within(_LOOK) or self._is_emptied()):
                watch(self.report())
            self._stopped = stop.wait(0)
            if self._query.isActive:
                self._stop_between_batches()
        finally:
            # In any case, Ctrl-C included: a query must not continue without the job.
            self._ended = True
            # Spark Connect needs minutes to tell that its server is away, each time it is asked.
            if not self._files.is_lost:
                self._query.stop()
                self._files.refresh()
            watch(self.report())
        # Otherwise, an end by another run would look like the end of the work.
        if self._files.is_replaced and not self._stopped:
            raise ingest_error(
                "another run of the job has begun with the same state and replaces this one; run "
                "a job only once at a time",
                FailureCause.STATE,
            )

    def _is_emptied(self) -> bool:
        """Return whether receivers have emptied the subscription, and their rows are written.

        Raises:
            IngestError: The receivers have failed.
        """
        if self._tasks is None:
            return False
        self._tasks.check()
        if not self._tasks.is_over:
            return False
        if self._last is None:
            # The last look may be older than the last segments.
            self._files.refresh()
        waiting = {one.segment for one in self._files.segments(self._handler.offset)}
        if self._last is None:
            self._last = waiting
        return self._last.isdisjoint(waiting)

    def report(self) -> IngestReport:
        """Return the current results."""
        if not self._files.is_lost:
            self._source = _source_report(self._query) or self._source
        totals = self._handler.totals
        outage, waiting = self._outage(), self._waiting()
        phase = self._current_phase(outage, waiting)
        if (phase, totals.batches) != (self._phase, self._batches):
            self._phase, self._batches = phase, totals.batches
            self._since = SYSTEM_CLOCK.now()
        if outage is not None and phase is Phase.UNREACHABLE:
            self._since = outage.since
        return IngestReport(
            totals,
            SYSTEM_CLOCK.monotonic() - self._began,
            self._source,
            self._to,
            self._bad_to,
            self._stopped,
            phase,
            self._since,
            waiting,
            self._handler.reasons,
            self._handler.unknown,
            self._notice,
            outage,
            self._receivers(),
            self._server,
        )

    def _receivers(self) -> Receivers | None:
        tasks = self._tasks
        if tasks is None:
            return None
        return Receivers(tasks.count, 0 if self._ended else tasks.running or 0, tasks.restarts)

    def _outage(self) -> Outage | None:
        """Return the outage of the source; short ones are normal, because servers end streams."""
        found = None if self._ended else self._files.outage()
        if found is None or SYSTEM_CLOCK.now() - found.since < _OUTAGE:
            return None
        return found

    def _current_phase(self, outage: Outage | None, waiting: Waiting) -> Phase:
        if self._ended:
            return Phase.ENDING
        if self._handler.phase is not Phase.WAITING:
            return self._handler.phase
        message = self._query.status["message"]
        if outage is not None:
            return Phase.UNREACHABLE
        if message.startswith("Initializing"):
            return Phase.CONNECTING
        if message.startswith("Processing"):
            return Phase.PLANNING if self._is_committed() else Phase.COMMITTING
        # Spark asks the source for a batch, which waits for messages or makes the batch.
        is_asked = message.startswith("Getting offsets")
        return Phase.PLANNING if is_asked and waiting.segments else Phase.WAITING

    def _waiting(self) -> Waiting:
        now = SYSTEM_CLOCK.monotonic()
        if now - self._looked >= self._files.look_every:
            self._looked, self._found = now, self._look()
        return self._found

    def _look(self) -> Waiting:
        try:
            found = self._files.segments(self._handler.offset)
        except Exception as error:
            if not is_of_storage(error):
                raise
            # The source reports a spool that cannot be read.
            return Waiting()
        oldest = min((one.oldest for one in found if one.oldest is not None), default=None)
        return Waiting(
            len(found),
            sum(one.size for one in found),
            max((one.attempts for one in found), default=0),
            0.0 if oldest is None else max(SYSTEM_CLOCK.now() - oldest, 0.0),
        )

    def _stop_between_batches(self) -> None:
        """Finish the current batch: wait until it is written and committed by Spark.

        If Spark starts another batch in the meantime, the batch is refused and its query fails.
        Spark has recorded this batch as planned, so the next run starts with it.
        """
        while not self._handler.close():
            if self._ended_within(_LAST_LOOK):
                return
        deadline = SYSTEM_CLOCK.monotonic() + _COMMIT_WAIT
        while not self._is_committed() and SYSTEM_CLOCK.monotonic() < deadline:
            if self._ended_within(_LAST_LOOK):
                return

    def _is_committed(self) -> bool:
        # The progress does not tell: an idle query reports the number of its next batch.
        written = self._handler.written
        return written is None or self._files.committed() >= written

    def _ended_within(self, seconds: float) -> bool:
        """Return whether the query ends within this time; raise IngestError if it failed."""
        try:
            return bool(self._query.awaitTermination(seconds))  # type: ignore[arg-type]
        except PySparkException as error:
            self._files.refresh()
            if self._handler.refused and self._handler.failure is None:
                return True
            if DRAINED in str(error):
                return True
            if self._handler.failure is None and self._is_started_again(error):
                return False
            raise failure_of(error, self._handler.failure) from (self._handler.failure or error)

    def _started(self) -> StreamingQuery:
        """Start the query, again if a process for its batches was not ready (Spark Connect)."""
        while True:
            try:
                return self._start()
            except PySparkException as error:
                if SLOW_START not in str(error):
                    raise
                if not self._may_start_again(error):
                    raise failure_of(error, None) from error

    def _is_started_again(self, error: PySparkException) -> bool:
        """Start the query again if its source was not ready in time; then nothing was read."""
        may_start = self._may_start_again(error)
        if may_start:
            self._query = self._started()
        return may_start

    def _may_start_again(self, error: PySparkException) -> bool:
        if SLOW_START not in str(error) or self._restarts == _RESTARTS:
            return False
        self._restarts += 1
        self._notice = (
            "the Python process of the source was not ready within the 10 s that Spark waits; "
            f"nothing was read, and the query is started again ({self._restarts} of {_RESTARTS})"
        )
        return True


def receivers_of(
    session: SparkSession, job: IngestJob
) -> AbstractContextManager[ReceiverTasks | None]:
    """Return the receivers of a job, which run during a `with` block; None: it has no tasks."""
    if job.receivers is None:
        return nullcontext()
    options = job.source_options()
    return ReceiverTasks(session, options, count=job.receivers, available_now=job.available_now)


def start_query(
    session: SparkSession,
    job: IngestJob,
    state: IngestState,
    handler: Callable[[DataFrame, int], None],
) -> StreamingQuery:
    """Start the query of a job.

    Args:
        session: The session.
        job: The configuration.
        state: The state, which has the checkpoint.
        handler: The function of the query, which Spark Connect pickles.

    Raises:
        IngestError: An option of the source is invalid.
    """
    source = session.readStream.format("pubsub").options(**job.source_options())
    ends_alone = job.available_now and job.receivers is None
    if ends_alone and not passes_start():
        # Spark would end the query after one batch.
        source = source.option(UNTIL_DRAINED, True)
    try:
        messages = source.load()
    except PySparkException as error:
        text = f"the job cannot start: {reason_of(error)}"
        raise ingest_error(text, FailureCause.OTHER) from error
    writer = messages.writeStream.foreachBatch(handler)
    writer = writer.option("checkpointLocation", state.checkpoint).queryName(f"ingest-{state.run}")
    if ends_alone and passes_start():
        writer = writer.trigger(availableNow=True)
    elif job.every is not None:
        writer = writer.trigger(processingTime=f"{round(job.every * 1000)} milliseconds")
    return writer.start()


def _source_report(query: StreamingQuery) -> dict[str, int] | None:
    """Return the last report of the source, from the progress of the last batch.

    Before PySpark 4.2, sources cannot report.
    """
    if not passes_start():
        return None
    progress = query.lastProgress
    told = progress.sources[0].latestOffset if progress is not None else None
    found: dict[str, int] | None = json.loads(told) if told else None
    return found
