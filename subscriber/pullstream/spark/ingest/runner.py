"""Runs an ingestion job: from a subscription to a table, until it is stopped or has caught up."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql.datasource import CaseInsensitiveDict

from pullstream.spark.datasource.options import StreamOptions
from pullstream.spark.datasource.registration import register
from pullstream.spark.errors import FailureCause, caused_by, ingest_error
from pullstream.spark.local.java_error import reason_of
from pullstream.spark.local.session_builder import local_session
from pullstream.spark.pyspark_version import STREAMS, require_pyspark
from pullstream.spark.session.settings import IngestSettings
from pullstream.spark.spool.committed_batches import mark_committed
from pullstream.spark.spool.waiting_segments import WaitingSegments
from pullstream_protocol.clock import SYSTEM_CLOCK

from .batch_handler import BatchHandler
from .columns import arrow_schema, bad_schema, check_names, kinds, table_schema
from .config import IngestJob
from .failures import SLOW_START, failure_of
from .report import IngestReport, Phase
from .state import IngestState, committed_offset, planned_and_committed, source_id
from .targets import LAKE_FORMATS, Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# Polling intervals of the query in seconds: normally, and when the job is ending.
_LOOK = 0.5
_LAST_LOOK = 0.05

# Time that Spark may take to commit a written batch, in seconds.
_COMMIT_WAIT = 10.0

# Number of times that a query is started again whose source process was not ready in time.
_RESTARTS = 5


def run_ingest(
    job: IngestJob,
    *,
    spark: SparkSession | None = None,
    stop: threading.Event | None = None,
    watch: Callable[[IngestReport], None] = lambda report: None,
) -> IngestReport:
    """Run a job to its end and return its results.

    Every message is in the table once, or in the table of bad rows. If a run is killed, the next
    run with the same state writes the unfinished batch again and replaces any part of it. Messages
    are acknowledged after their batch is committed.

    Args:
        job: The configuration.
        spark: The session to use. Default: the running session, otherwise a new one on this
            machine.
        stop: When set, the job finishes the current batch and ends.
        watch: Called with the current results every half second, and at the end.

    Raises:
        IngestError: The job cannot start, or has failed; see its attribute `cause`. Written rows
            stay, and the next run continues from there.
        ValueError: An option, a column or the schema is invalid.
    """
    require_pyspark(STREAMS, "an ingestion job")
    watch(IngestReport(since=SYSTEM_CLOCK.now()))
    session = spark or local_session()
    register(session)
    watch(IngestReport(phase=Phase.OPENING, since=SYSTEM_CLOCK.now()))
    decoding = job.decoding()
    rows = table_schema(session, job, decoding)
    columns = arrow_schema(rows, decoding.required)
    target = job.target(columns)
    check_names(rows, target, job.format)
    with caused_by(FailureCause.TABLE):
        target.open(session, columns)
    bad_rows = arrow_schema(bad_schema(session, job, decoding), decoding.required)
    bad = job.bad_target(bad_rows)
    if bad is not None:
        with caused_by(FailureCause.TABLE):
            bad.open(session, bad_rows)
    targets = [one for one in (target, bad) if one is not None]

    def newest(source: str) -> int:
        with caused_by(FailureCause.TABLE):
            return max(one.newest(session, source) for one in targets)

    # A lake's table knows its columns, and has compared them.
    known = {} if job.format in LAKE_FORMATS else kinds(rows)
    with (
        caused_by(FailureCause.STATE),
        IngestState.open(job.state_folder, job.identity, known, job.reading, newest) as state,
    ):
        source = source_id(state.folder)
        if source is not None and planned_and_committed(state.folder)[0] < 0:
            # The checkpoint is lost. The table proves which batches it has.
            mark_committed(_settings(job, state), target.newest(session, source))
        handler = BatchHandler(decoding, target, bad, name=state.batch)
        handler.offset = committed_offset(state.folder)
        segments = WaitingSegments(state.spool)
        run = _Run(handler, lambda: _start(session, job, state, handler), target, bad, segments)
        run.wait(stop or threading.Event(), watch)
    return run.report()


class _Run:
    """One query, from its start to its end; used by one thread.

    Args:
        handler: The query's function.
        start: Starts the query, also again.
        target: The table, for its description.
        bad: The table of bad rows.
        segments: The uncommitted segments of the query's source.
    """

    def __init__(
        self,
        handler: BatchHandler,
        start: Callable[[], StreamingQuery],
        target: Target,
        bad: Target | None,
        segments: WaitingSegments,
    ) -> None:
        self._handler = handler
        self._start = start
        self._query = start()
        self._segments = segments
        self._to = target.place
        self._bad_to = None if bad is None else bad.place
        self._began = SYSTEM_CLOCK.monotonic()
        self._source: dict[str, int] = {}
        self._stopped = False
        self._ended = False
        self._restarts = 0
        self._notice = ""
        self._phase = Phase.CONNECTING
        self._since = SYSTEM_CLOCK.now()
        self._batches = 0

    def wait(self, stop: threading.Event, watch: Callable[[IngestReport], None]) -> None:
        """Return when the query has ended; raise IngestError if it failed."""
        try:
            while not (stop.is_set() or self._ended_within(_LOOK)):
                watch(self.report())
            if self._query.isActive:
                self._stop_between_batches()
        finally:
            # In any case, Ctrl-C included: a query must not continue without the job.
            self._query.stop()
            self._ended = True
            watch(self.report())

    def report(self) -> IngestReport:
        """Return the current results."""
        self._source = _source_report(self._query) or self._source
        totals = self._handler.totals
        phase = self._current_phase()
        if (phase, totals.batches) != (self._phase, self._batches):
            self._phase, self._batches = phase, totals.batches
            self._since = SYSTEM_CLOCK.now()
        return IngestReport(
            totals,
            SYSTEM_CLOCK.monotonic() - self._began,
            self._source,
            self._to,
            self._bad_to,
            self._stopped,
            phase,
            self._since,
            self._lag(),
            self._handler.reasons,
            self._notice,
        )

    def _current_phase(self) -> Phase:
        if self._ended:
            return Phase.ENDING
        if self._handler.phase is not Phase.WAITING:
            return self._handler.phase
        message = self._query.status["message"]
        if message.startswith("Initializing"):
            return Phase.CONNECTING
        if message.startswith("Processing"):
            return Phase.PLANNING if self._is_committed() else Phase.COMMITTING
        return Phase.WAITING

    def _lag(self) -> float:
        try:
            waiting = self._segments.after(self._handler.offset)
        except OSError:
            # The source reports a folder that cannot be read.
            return 0.0
        times = [segment.oldest for segment in waiting if segment.oldest is not None]
        return max(SYSTEM_CLOCK.now() - min(times), 0.0) if times else 0.0

    def _stop_between_batches(self) -> None:
        """Finish the current batch: wait until it is written and committed by Spark.

        If Spark starts another batch in the meantime, the batch is refused and its query fails.
        Spark has recorded this batch as planned, so the next run starts with it.
        """
        self._stopped = True
        while not self._handler.close():
            if self._ended_within(_LAST_LOOK):
                return
        deadline = SYSTEM_CLOCK.monotonic() + _COMMIT_WAIT
        while not self._is_committed() and SYSTEM_CLOCK.monotonic() < deadline:
            if self._ended_within(_LAST_LOOK):
                return

    def _is_committed(self) -> bool:
        progress = self._query.lastProgress
        written = self._handler.written
        return written is None or (progress is not None and progress["batchId"] >= written)

    def _ended_within(self, seconds: float) -> bool:
        """Return whether the query ends within this time; raise IngestError if it failed."""
        try:
            return bool(self._query.awaitTermination(seconds))  # type: ignore[arg-type]
        except PySparkException as error:
            if self._handler.refused and self._handler.failure is None:
                return True
            if self._handler.failure is None and self._is_started_again(error):
                return False
            raise failure_of(error, self._handler.failure) from (self._handler.failure or error)

    def _is_started_again(self, error: PySparkException) -> bool:
        """Start the query again if its source was not ready in time; then nothing was read."""
        if SLOW_START not in str(error) or self._restarts == _RESTARTS:
            return False
        self._restarts += 1
        self._notice = (
            "the Python process of the source was not ready within the 10 s that Spark waits; "
            f"nothing was read, and the query is started again ({self._restarts} of {_RESTARTS})"
        )
        self._query = self._start()
        return True


def _settings(job: IngestJob, state: IngestState) -> IngestSettings:
    given = {**job.options, "subscription": job.subscription, "spoolDir": str(state.spool)}
    return StreamOptions.parse(CaseInsensitiveDict(given), files_are_shared=True).settings


def _start(
    session: SparkSession, job: IngestJob, state: IngestState, handler: BatchHandler
) -> StreamingQuery:
    source = session.readStream.format("pubsub").options(**job.options)
    source = source.option("subscription", job.subscription).option("spoolDir", str(state.spool))
    try:
        messages = source.load()
    except PySparkException as error:
        text = f"the job cannot start: {reason_of(error)}"
        raise ingest_error(text, FailureCause.OTHER) from error
    writer = messages.writeStream.foreachBatch(handler)
    writer = writer.option("checkpointLocation", state.checkpoint).queryName(f"ingest-{state.run}")
    if job.available_now:
        writer = writer.trigger(availableNow=True)
    elif job.every is not None:
        writer = writer.trigger(processingTime=f"{round(job.every * 1000)} milliseconds")
    return writer.start()


def _source_report(query: StreamingQuery) -> dict[str, int] | None:
    """Return the last report of the source, from the progress of the last batch."""
    progress = query.lastProgress
    told = progress.sources[0].latestOffset if progress is not None else None
    found: dict[str, int] | None = json.loads(told) if told else None
    return found
